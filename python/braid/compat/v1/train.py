"""tf.train: optimizers, savers, sessions with hooks, queue-style input."""

import os
import re

import numpy as np

from braid import _braid, ops, optim as _optim
from braid.compat.v1 import errors as _errors
from braid.compat.v1._config import say_once
from braid.compat.v1._input import batch, shuffle_batch, string_input_producer
from braid.compat.v1._session import Session as _Session
from braid.compat.v1._variables import (GraphKeys, add_to_collection, get_collection, global_variables,
                                        global_variables_initializer, make_variable, variables_initializer)
from braid.dtypes import int64
from braid.graph import Operation, Tensor, default_graph


# --------------------------------------------------------------------------------------------------------- optimizers
class Optimizer:
    """tf.train.Optimizer over the same updates as bd.optim."""

    def __init__(self, inner):
        self._inner = inner

    @staticmethod
    def _gradients(loss):
        from braid.compat.v1 import IndexedSlices
        return {each: dense if dense is not None else IndexedSlices(rows[1], rows[0], each.shape)
                for each, dense, rows in loss.graph.add_gradients(loss)}

    def compute_gradients(self, loss, var_list=None, **_):
        found = self._gradients(loss)
        wanted = [each for each in loss.graph.variables if each.trainable] if var_list is None else list(var_list)
        return [(found.get(each), each) for each in wanted]

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        pairs = [((each.indices, each.values) if hasattr(each, "indices") else each, variable)
                 for each, variable in grads_and_vars]
        graph, before = default_graph(), set(default_graph().variables)
        made = self._inner.apply_gradients(pairs, global_step, name)
        for each in graph.variables:  # slots: a program's initializer gives them values, and so does a rule
            if each not in before:
                add_to_collection(GraphKeys.GLOBAL_VARIABLES, each)
        return made

    def minimize(self, loss, global_step=None, var_list=None, name=None, **_):
        if loss.shape != ():
            loss = ops.reduce_sum(loss)
        return self.apply_gradients(self.compute_gradients(loss, var_list), global_step, name)

    def get_slot(self, var, name):
        raise _errors.UnimplementedError(None, None, "Optimizer.get_slot")


def _optimizer(inner, *names):
    class Made(Optimizer):
        def __init__(self, *values, use_locking=False, name=None, **settings):
            settings.update(zip(names, values))
            super().__init__(inner(settings))

    return Made


GradientDescentOptimizer = _optimizer(lambda s: _optim.SGD(s["learning_rate"]), "learning_rate")
MomentumOptimizer = _optimizer(
    lambda s: _optim.Momentum(s["learning_rate"], s["momentum"], s.get("use_nesterov", False)), "learning_rate", "momentum")
AdagradOptimizer = _optimizer(
    lambda s: _optim.Adagrad(s["learning_rate"], s.get("initial_accumulator_value", 0.1)), "learning_rate",
    "initial_accumulator_value")
AdamOptimizer = _optimizer(
    lambda s: _optim.Adam(s.get("learning_rate", 0.001), s.get("beta1", 0.9), s.get("beta2", 0.999),
                          s.get("epsilon", 1e-8)), "learning_rate", "beta1", "beta2", "epsilon")
FtrlOptimizer = _optimizer(
    lambda s: _optim.Ftrl(s["learning_rate"], s.get("initial_accumulator_value", 0.1), s.get("learning_rate_power", -0.5),
                          s.get("l1_regularization_strength", 0.0), s.get("l2_regularization_strength", 0.0)),
    "learning_rate", "learning_rate_power", "initial_accumulator_value")
RMSPropOptimizer = _optimizer(
    lambda s: _optim.RMSProp(s["learning_rate"], s.get("decay", 0.9), s.get("momentum", 0.0), s.get("epsilon", 1e-10)),
    "learning_rate", "decay", "momentum", "epsilon")


# -------------------------------------------------------------------------------------------------------- global step
def create_global_step(graph=None):
    return get_global_step() or get_or_create_global_step()


def get_global_step(graph=None):
    found = get_collection(GraphKeys.GLOBAL_STEP)
    if found:
        return found[0]
    return next((each for each in default_graph().variables if each.variable_name == "global_step"), None)


def get_or_create_global_step(graph=None):
    found = get_global_step()
    if found is None:
        found = make_variable("global_step", np.int64(0), trainable=False, dtype=int64)
        add_to_collection(GraphKeys.GLOBAL_STEP, found)
    return found


def exponential_decay(learning_rate, global_step, decay_steps, decay_rate, staircase=False, name=None):
    """learning_rate * decay_rate ^ (global_step / decay_steps)."""
    from braid.dtypes import float32
    passed = ops.cast(global_step, float32) / float(decay_steps)
    passed = ops.call("Floor", [passed]) if staircase else passed
    return ops.call("Pow", [default_graph().constant(np.float32(decay_rate)), passed]) * float(learning_rate)


def mark_target_node(nodes):
    """Nodes that the program runs; stages are cut by tf.staged, so this only remembers them."""
    default_graph().collections.setdefault("__targets", []).extend(nodes)


# -------------------------------------------------------------------------------------------------------------- savers
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
        from braid.dtypes import to_native
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


# --------------------------------------------------------------------------------------------------------------- hooks
class SessionRunArgs:
    def __init__(self, fetches, feed_dict=None, options=None):
        self.fetches, self.feed_dict, self.options = fetches, feed_dict, options


class SessionRunValues:
    def __init__(self, results, options=None, run_metadata=None):
        self.results, self.options, self.run_metadata = results, options, run_metadata


class SessionRunContext:
    def __init__(self, original_args, session):
        self.original_args, self.session, self.stop_requested = original_args, session, False

    def request_stop(self):
        self.stop_requested = True


class SessionRunHook:
    """What a monitored session calls; all methods may be left out."""

    def begin(self):
        pass

    def after_create_session(self, session, coord):
        pass

    def before_run(self, run_context):
        return None

    def after_run(self, run_context, run_values):
        pass

    def end(self, session):
        pass


class _PrefetchHook(SessionRunHook):
    def after_create_session(self, session, coord):
        session.start_stages()

    def end(self, session):
        session._native.close()


class StopAtStepHook(SessionRunHook):
    def __init__(self, num_steps=None, last_step=None):
        self._num, self._last = num_steps, last_step

    def begin(self):
        self._step = get_or_create_global_step()

    def after_create_session(self, session, coord):
        if self._last is None:
            self._last = int(session.value(self._step)) + self._num

    def after_run(self, run_context, run_values):
        if int(run_context.session.value(self._step)) >= self._last:
            run_context.request_stop()


class LoggingTensorHook(SessionRunHook):
    def __init__(self, tensors, every_n_iter=None, every_n_secs=None, at_end=False, formatter=None):
        self._tensors = tensors if isinstance(tensors, dict) else {each if isinstance(each, str) else each.name: each
                                                                   for each in tensors}
        self._every, self._formatter, self._runs = every_n_iter or 100, formatter, 0

    def before_run(self, run_context):
        return SessionRunArgs(self._tensors)

    def after_run(self, run_context, run_values):
        if self._runs % self._every == 0:
            text = self._formatter(run_values.results) if self._formatter else ", ".join(
                f"{name} = {value}" for name, value in run_values.results.items())
            print(f"INFO:tensorflow:{text}", flush=True)
        self._runs += 1


class NanTensorHook(SessionRunHook):
    def __init__(self, loss_tensor, fail_on_nan_loss=True):
        self._loss, self._fail = loss_tensor, fail_on_nan_loss

    def before_run(self, run_context):
        return SessionRunArgs(self._loss)

    def after_run(self, run_context, run_values):
        if np.isnan(run_values.results).any():
            if self._fail:
                raise NanLossDuringTrainingError("NaN loss during training.")
            run_context.request_stop()


class NanLossDuringTrainingError(RuntimeError):
    pass


class CheckpointSaverHook(SessionRunHook):
    def __init__(self, checkpoint_dir, save_secs=None, save_steps=None, saver=None, checkpoint_basename="model.ckpt", **_):
        self._prefix, self._every, self._saver = os.path.join(checkpoint_dir, checkpoint_basename), save_steps, saver

    def begin(self):
        self._saver = self._saver or Saver()
        self._step = get_or_create_global_step()
        self._saved = None

    def after_run(self, run_context, run_values):
        step = int(run_context.session.value(self._step))
        if self._every and step != self._saved and step % self._every == 0:
            self._save(run_context.session, step)

    def end(self, session):
        step = int(session.value(self._step))
        if step != self._saved:
            self._save(session, step)

    def _save(self, session, step):
        self._saver.save(session, self._prefix, step)
        self._saved = step


class _NoHook(SessionRunHook):
    def __init__(self, *_, **__):
        say_once(f"{type(self).__name__} has no effect here")


class SummarySaverHook(_NoHook):
    pass


class StepCounterHook(_NoHook):
    pass


class ProfilerHook(_NoHook):
    pass


class _NoWriter:
    def __init__(self, *_, **__):
        say_once("summaries are not written: bd.callbacks.TensorBoard writes a Trainer's")

    def __getattr__(self, name):
        return lambda *_, **__: None


def _no_summary(name):
    say_once(f"summary '{name}' is not written")


# ------------------------------------------------------------------------------------------------- monitored sessions
class Scaffold:
    def __init__(self, init_op=None, init_feed_dict=None, init_fn=None, local_init_op=None, saver=None, **_):
        self.init_op, self.init_feed_dict, self.init_fn, self.saver = init_op, init_feed_dict, init_fn, saver


class ChiefSessionCreator:
    def __init__(self, scaffold=None, master="", config=None, checkpoint_dir=None, **_):
        self.scaffold, self.config, self.checkpoint_dir = scaffold or Scaffold(), config, checkpoint_dir

    def create_session(self):
        session = _Session(config=self.config)
        path = self.checkpoint_dir and latest_checkpoint(self.checkpoint_dir)
        if path:
            (self.scaffold.saver or Saver()).restore(session, path)
        else:
            init = self.scaffold.init_op
            session.run(init if init is not None else global_variables_initializer(), self.scaffold.init_feed_dict)
        if self.scaffold.init_fn:
            self.scaffold.init_fn(self.scaffold, session)
        return session


WorkerSessionCreator = ChiefSessionCreator


class MonitoredSession:
    """A session with hooks: runs until the input ends or a hook asks it to stop."""

    def __init__(self, session_creator=None, hooks=None, stop_grace_period_secs=120):
        self._hooks = list(hooks or [])
        for hook in self._hooks:
            hook.begin()
        self._session = (session_creator or ChiefSessionCreator()).create_session()
        self.graph, self._stop = self._session.graph, False
        for hook in self._hooks:
            hook.after_create_session(self._session, None)

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        contexts, asked, feeds = [], {}, dict(feed_dict or {})
        context = SessionRunContext(SessionRunArgs(fetches, feed_dict), self._session)
        for i, hook in enumerate(self._hooks):
            args = hook.before_run(context)
            if args is not None:
                asked[i] = args.fetches
                feeds.update(args.feed_dict or {})
        try:
            values = self._session.run({"caller": fetches, "hooks": asked}, feeds)
        except (_errors.OutOfRangeError, StopIteration):
            self._stop = True
            raise
        for i, hook in enumerate(self._hooks):
            hook.after_run(context, SessionRunValues(values["hooks"].get(i)))
        self._stop = self._stop or context.stop_requested
        return values["caller"]

    def run_step_fn(self, step_fn):
        return step_fn(_StepContext(self))

    def should_stop(self):
        return self._stop

    def close(self):
        for hook in self._hooks:
            hook.end(self._session)
        self._session.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        ended = kind is None or issubclass(kind, (_errors.OutOfRangeError, StopIteration))
        if ended:
            self.close()
        else:
            self._session.close()
        return ended and kind is not None


class _StepContext:
    def __init__(self, session):
        self._session, self.session = session, session._session

    def run_with_hooks(self, *arguments, **named):
        return self._session.run(*arguments, **named)

    def request_stop(self):
        self._session._stop = True


class SingularMonitoredSession(MonitoredSession):
    def __init__(self, hooks=None, scaffold=None, master="", config=None, checkpoint_dir=None, **_):
        super().__init__(ChiefSessionCreator(scaffold, master, config, checkpoint_dir), hooks)

    def raw_session(self):
        return self._session


def MonitoredTrainingSession(master="", is_chief=True, checkpoint_dir=None, scaffold=None, hooks=None,  # noqa: N802
                             chief_only_hooks=None, save_checkpoint_secs=600, save_summaries_steps=None, config=None,
                             save_checkpoint_steps=None, **_):
    """tf.train.MonitoredTrainingSession: initial values or the newest checkpoint, hooks, and checkpoints."""
    hooks = list(hooks or []) + (list(chief_only_hooks or []) if is_chief else [])
    if checkpoint_dir and is_chief and not any(isinstance(each, CheckpointSaverHook) for each in hooks):
        hooks.append(CheckpointSaverHook(checkpoint_dir, save_steps=save_checkpoint_steps))
    if any(isinstance(each, (CheckpointSaverHook, StopAtStepHook)) for each in hooks):
        get_or_create_global_step()  # before the initial values are
    return MonitoredSession(ChiefSessionCreator(scaffold, master, config, checkpoint_dir), hooks)


# ----------------------------------------------------------------------------------------------- what queues needed
class Coordinator:
    """Threads of queue runners do not exist; a Coordinator only remembers that it was asked to stop."""

    def __init__(self, *_, **__):
        self._stop = False

    def should_stop(self):
        return self._stop

    def request_stop(self, ex=None):
        self._stop = True

    def join(self, threads=None, **_):
        pass

    def stop_on_exception(self):
        import contextlib
        return contextlib.suppress(_errors.OutOfRangeError)


def start_queue_runners(sess=None, coord=None, **_):
    """Nothing to start: records are read where a run needs them."""
    return []


class ClusterSpec:
    """tf.train.ClusterSpec: job names to addresses."""

    def __init__(self, cluster):
        self._cluster = {name: list(tasks.values() if isinstance(tasks, dict) else tasks)
                         for name, tasks in (cluster.as_dict() if isinstance(cluster, ClusterSpec) else cluster).items()}
        for name, tasks in self._cluster.items():
            for task in tasks:
                if task.count(":") != 1:
                    raise ValueError(f"ClusterSpec: '{task}' of job '{name}' is not host:port; is a comma missing?")

    def as_dict(self):
        return dict(self._cluster)

    @property
    def jobs(self):
        return sorted(self._cluster)

    def num_tasks(self, job_name):
        return len(self._cluster[job_name])


def Server(*_, **__):  # noqa: N802
    raise _errors.UnimplementedError(
        None, None, "tf.train.Server: distributed training is bd.Trainer(strategy=bd.PS()) under `braid launch`; Server")


def SyncReplicasOptimizer(*_, **__):  # noqa: N802
    raise _errors.UnimplementedError(
        None, None, "tf.train.SyncReplicasOptimizer: bd.Trainer(strategy=bd.AllReduce()) averages gradients; it")


def replica_device_setter(*_, **__):
    """Variables of all servers' names are this process's own."""
    say_once("replica_device_setter: a process runs its own graph; variables are its own")
    return ""
