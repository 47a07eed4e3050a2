"""Savers, and where checkpoints are."""

import os
import re

from braid import _braid
from braid.compat.v1 import errors as _errors
from braid.dtypes import to_native
from braid.graph import Tensor


class Saver:
    """Writes and reads TensorFlow's checkpoints (<prefix>.index, <prefix>.data-...), newest names in `checkpoint`."""

    def __init__(self, var_list=None, max_to_keep=5, **_):
        self._list, self._keep, self._kept = var_list, max_to_keep, []

    def _variables(self, graph):
        if isinstance(self._list, dict):
            return dict(self._list)
        return {each.variable_name: each for each in (self._list or graph.variables)}

    def save(self, sess, save_path, global_step=None, **_):
        if isinstance(global_step, Tensor):
            global_step = int(sess.value(global_step))
        prefix = save_path if global_step is None else f"{save_path}-{global_step}"
        values = {}
        for name, variable in self._variables(sess.graph).items():
            value = sess.value(variable)
            if value is None:
                raise _errors.FailedPreconditionError(f"variable '{name}' has no value to save")
            values[name] = to_native(value)
        os.makedirs(os.path.dirname(os.path.abspath(prefix)), exist_ok=True)
        _braid.write_bundle(prefix, values)
        self._remember(prefix)
        return prefix

    def _remember(self, prefix):
        self._kept = [each for each in self._kept if each != prefix] + [prefix]
        while self._keep and len(self._kept) > self._keep:
            old = self._kept.pop(0)
            for end in (".index", ".data-00000-of-00001"):
                if os.path.exists(old + end):
                    os.remove(old + end)
        with open(os.path.join(os.path.dirname(os.path.abspath(prefix)), "checkpoint"), "w") as out:
            for key, each in [("model_checkpoint_path", prefix)] + [("all_model_checkpoint_paths", e) for e in self._kept]:
                out.write(f'{key}: "{os.path.basename(each)}"\n')

    def restore(self, sess, save_path):
        stored = _braid.read_bundle(save_path)
        for name, variable in self._variables(sess.graph).items():
            if name not in stored:
                raise _errors.NotFoundError(f"checkpoint '{save_path}' has no variable '{name}'")
            sess.assign(variable, stored[name])

    @property
    def last_checkpoints(self):
        return list(self._kept)


def latest_checkpoint(checkpoint_dir, latest_filename=None):
    """The prefix of the newest checkpoint of a folder, or None."""
    file = os.path.join(checkpoint_dir, latest_filename or "checkpoint")
    if not os.path.exists(file):
        return None
    found = re.search(r'^model_checkpoint_path: "(.*)"', open(file).read(), re.M)
    return os.path.join(checkpoint_dir, found.group(1)) if found else None


class CheckpointState:
    def __init__(self, path):
        self.model_checkpoint_path = path


def get_checkpoint_state(checkpoint_dir, latest_filename=None):
    path = latest_checkpoint(checkpoint_dir, latest_filename)
    return path and CheckpointState(path)
