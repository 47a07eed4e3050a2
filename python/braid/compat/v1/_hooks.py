"""Hooks, and sessions that call them."""

import contextlib
import os

import numpy as np

from braid.compat.v1 import _cluster, errors as _errors
from braid.compat.v1._config import say_once
from braid.compat.v1._saver import Saver, latest_checkpoint
from braid.compat.v1._session import Session as _Session
from braid.compat.v1._variables import get_or_create_global_step, global_variables_initializer


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


class PrefetchHook(SessionRunHook):
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


# ------------------------------------------------------------------------------------------------- monitored sessions
class Scaffold:
    def __init__(self, init_op=None, init_feed_dict=None, init_fn=None, local_init_op=None, saver=None, **_):
        self.init_op, self.init_feed_dict, self.init_fn, self.saver = init_op, init_feed_dict, init_fn, saver


class ChiefSessionCreator:
    def __init__(self, scaffold=None, master="", config=None, checkpoint_dir=None, **_):
        self.scaffold, self.config, self.checkpoint_dir = scaffold or Scaffold(), config, checkpoint_dir
        self.master = master

    def create_session(self):
        session = _Session(self.master, config=self.config)
        path = self.checkpoint_dir and latest_checkpoint(self.checkpoint_dir)
        if path:
            (self.scaffold.saver or Saver()).restore(session, path)
        else:
            init = self.scaffold.init_op
            session.run(init if init is not None else global_variables_initializer(), self.scaffold.init_feed_dict)
        if self.scaffold.init_fn:
            self.scaffold.init_fn(self.scaffold, session)
        _share(session)
        return session


class WorkerSessionCreator(ChiefSessionCreator):
    """Of a worker that is no chief, whose values it gets."""

    def __init__(self, scaffold=None, master="", config=None, **_):
        super().__init__(scaffold, master, config)


def _share(session):
    if session._peers is not None:
        _cluster.share_values(session)


class SessionManager:
    """tf.train.SessionManager: sessions whose variables have their values."""

    def __init__(self, local_init_op=None, ready_op=None, graph=None, **_):
        pass

    def prepare_session(self, master="", init_op=None, saver=None, checkpoint_dir=None, config=None, init_feed_dict=None,
                        init_fn=None, **_):
        scaffold = Scaffold(init_op, init_feed_dict, init_fn and (lambda _, session: init_fn(session)), saver=saver)
        return ChiefSessionCreator(scaffold, master, config, checkpoint_dir).create_session()

    def wait_for_session(self, master="", config=None, **_):
        return WorkerSessionCreator(None, master, config).create_session()

    def recover_session(self, master="", saver=None, checkpoint_dir=None, config=None, **_):
        """(session, whether a checkpoint was there)."""
        found = bool(checkpoint_dir and latest_checkpoint(checkpoint_dir))
        return self.prepare_session(master, None, saver, checkpoint_dir, config), found


class Supervisor:
    """tf.train.Supervisor: initial values or the newest checkpoint of `logdir`, the chief's for all workers."""

    def __init__(self, graph=None, is_chief=True, init_op=None, saver=None, global_step=None, logdir=None,
                 save_model_secs=600, **_):
        self.is_chief, self._stop, self.global_step = is_chief, False, global_step
        self._logdir = logdir if is_chief else None
        self._creator = ChiefSessionCreator(Scaffold(init_op, saver=saver), checkpoint_dir=self._logdir)
        self.saver = saver or Saver()

    def prepare_or_wait_for_session(self, master="", config=None, **_):
        self._creator.master, self._creator.config = master, config
        return self._creator.create_session()

    @contextlib.contextmanager
    def managed_session(self, master="", config=None, **_):
        session = self.prepare_or_wait_for_session(master, config)
        with session:
            try:
                yield session
            except (_errors.OutOfRangeError, StopIteration):
                pass
            if self._logdir:
                self.saver.save(session, os.path.join(self._logdir, "model.ckpt"), self.global_step)

    def should_stop(self):
        return self._stop

    def request_stop(self, ex=None):
        self._stop = True

    stop = request_stop

    def start_queue_runners(self, *_, **__):
        return []

    start_standard_services = start_queue_runners


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
        asked, feeds = {}, dict(feed_dict or {})
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
    creator = ChiefSessionCreator(scaffold, master, config, checkpoint_dir) if is_chief else WorkerSessionCreator(
        scaffold, master, config)
    return MonitoredSession(creator, hooks)
