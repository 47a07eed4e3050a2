"""tf.cuda of Multi-Stream TensorFlow: streams as objects, and scopes of them."""

import os
from typing import Any

from braid.graph import default_graph


class Stream:
    """A stream by its number, or the next that no scope has."""

    def __init__(self, id=None):
        used = default_graph().collections.setdefault("__streams", set())
        self.id = next(i for i in range(1, 65536) if i not in used) if id is None else int(id)
        used.add(self.id)

    def __enter__(self):
        self._scope = stream_scope(self)
        return self._scope.__enter__()

    def __exit__(self, *what):
        return self._scope.__exit__(*what)


def get_stream(id=None):
    """The stream with that number; without one, the next that is free."""
    return Stream(id)


def stream_scope(stream, include_grad=False, hold_tensors=None):
    """Nodes inside run on `stream`; their gradients too with include_grad."""
    if hold_tensors is not None:
        from braid.compat.v1._config import say_once
        say_once("hold_tensors has no effect: memory lives as long as the step needs it")
    return default_graph().stream(getattr(stream, "id", stream), include_grad)


_open: list[Any] = []


def stream_scope_start(stream, include_grad=False):
    """Opens a scope that stream_scope_end closes."""
    _open.append(stream_scope(stream, include_grad))
    _open[-1].__enter__()


def stream_scope_end(*_):
    _open.pop().__exit__(None, None, None)


def streams_of_environment():
    """How many streams TF_GPU_STREAM_GROUP_COUNT asks for; 1 where node-level streams are off."""
    if os.environ.get("TF_NODE_LEVEL_MULTISTREAM", "true").lower() in ("false", "0"):
        return 1
    return int(os.environ.get("TF_GPU_STREAM_GROUP_COUNT", "1"))
