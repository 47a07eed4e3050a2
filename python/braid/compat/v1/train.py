"""tf.train: optimizers, savers, sessions with hooks, queue-style input."""

import numpy as np

from braid import ops, optim as _optim
from braid.compat.v1 import _cluster, errors as _errors
from braid.compat.v1._cluster import ClusterSpec, Server, replica_device_setter
from braid.compat.v1._config import say_once
from braid.compat.v1._decays import (cosine_decay, exponential_decay, inverse_time_decay, natural_exp_decay,
                                     piecewise_constant, piecewise_constant_decay, polynomial_decay)
from braid.compat.v1._hooks import (CheckpointSaverHook, ChiefSessionCreator, LoggingTensorHook, MonitoredSession,
                                    MonitoredTrainingSession, NanLossDuringTrainingError, NanTensorHook,
                                    PrefetchHook as _PrefetchHook, ProfilerHook, Scaffold, SessionManager, SessionRunArgs,
                                    SessionRunContext, SessionRunHook, SessionRunValues, SingularMonitoredSession,
                                    StepCounterHook, StopAtStepHook, Supervisor, SummarySaverHook, WorkerSessionCreator)
from braid.compat.v1._input import batch, shuffle_batch, string_input_producer
from braid.compat.v1._saver import CheckpointState, Saver, get_checkpoint_state, latest_checkpoint
from braid.compat.v1._variables import (GraphKeys, add_to_collection, create_global_step, get_global_step,
                                        get_or_create_global_step)
from braid.graph import default_graph


# --------------------------------------------------------------------------------------------------------- optimizers
class Optimizer:
    """tf.train.Optimizer over the same updates as bd.optim."""

    _synchronous = False

    def __init__(self, inner):
        self._inner = inner

    @staticmethod
    def _gradients(loss):
        from braid.compat.v1 import IndexedSlices
        return {each: dense if dense is not None else IndexedSlices(rows[1], rows[0], each.shape)
                for each, dense, rows in loss.graph.add_gradients(loss)}

    def compute_gradients(self, loss, var_list=None, gate_gradients=1, aggregation_method=None,
                          colocate_gradients_with_ops=False, grad_loss=None):
        _errors.only("compute_gradients", {"grad_loss": grad_loss})
        found = self._gradients(loss)
        wanted = [each for each in loss.graph.variables if each.trainable] if var_list is None else list(var_list)
        return [(found.get(each), each) for each in wanted]

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        pairs = [((each.indices, each.values) if hasattr(each, "indices") else each, variable)
                 for each, variable in grads_and_vars]
        if _cluster.world() > 1 and not self._synchronous:
            say_once("several workers: each step averages all workers' gradients, as SyncReplicasOptimizer does")
        pairs = _cluster.averaged(pairs)
        graph, before = default_graph(), set(default_graph().variables)
        made = self._inner.apply_gradients(pairs, global_step, name)
        for each in graph.variables:  # slots: a program's initializer gives them values, and so does a rule
            if each not in before:
                add_to_collection(GraphKeys.GLOBAL_VARIABLES, each)
        return made

    def minimize(self, loss, global_step=None, var_list=None, gate_gradients=1, aggregation_method=None,
                 colocate_gradients_with_ops=False, name=None, grad_loss=None):
        _errors.only("minimize", {"grad_loss": grad_loss})
        if loss.shape != ():
            loss = ops.reduce_sum(loss)
        return self.apply_gradients(self.compute_gradients(loss, var_list), global_step, name)

    def get_slot(self, var, name):
        raise _errors.UnimplementedError(None, None, "Optimizer.get_slot")


class SyncReplicasOptimizer(Optimizer):
    """tf.train.SyncReplicasOptimizer: each step applies the mean of all workers' gradients."""

    _synchronous = True
    chief_init_op = local_step_init_op = ready_for_local_init_op = None

    def __init__(self, opt, replicas_to_aggregate, total_num_replicas=None, variable_averages=None,
                 variables_to_average=None, use_locking=False, name="sync_replicas"):
        super().__init__(opt._inner)
        workers = _cluster.world()
        for what, number in (("replicas_to_aggregate", replicas_to_aggregate),
                             ("total_num_replicas", total_num_replicas or replicas_to_aggregate)):
            if number != workers:
                raise _errors.InvalidArgumentError(
                    f"SyncReplicasOptimizer: {what} is {number}, and {workers} workers train together"
                    f"{' (tf.train.Server makes a process one of several)' if workers == 1 else ''}; gradients of all "
                    "workers are averaged")
        if variable_averages is not None:
            raise _errors.UnimplementedError(None, None, "SyncReplicasOptimizer(variable_averages=...)")

    def make_session_run_hook(self, is_chief, num_tokens=-1):
        return SessionRunHook()

    def get_init_tokens_op(self, num_tokens=-1):
        return default_graph().add("NoOp", [], None, "sync_replicas/tokens")

    def get_chief_queue_runner(self):
        return None


def _optimizer(kind, inner, *names):
    """An optimizer whose parameters have these names, in TensorFlow's order."""

    class Made(Optimizer):
        def __init__(self, *values, use_locking=False, name=None, **settings):
            settings.update(zip(names, values))
            _errors.only(kind, {key: value for key, value in settings.items() if key not in names})
            super().__init__(inner(settings))

    Made.__name__ = Made.__qualname__ = kind
    return Made


GradientDescentOptimizer = _optimizer("GradientDescentOptimizer", lambda s: _optim.SGD(s["learning_rate"]), "learning_rate")
MomentumOptimizer = _optimizer(
    "MomentumOptimizer",
    lambda s: _optim.Momentum(s["learning_rate"], s["momentum"], s.get("use_nesterov", False)), "learning_rate", "momentum",
    "use_locking", "name", "use_nesterov")
AdagradOptimizer = _optimizer(
    "AdagradOptimizer",
    lambda s: _optim.Adagrad(s["learning_rate"], s.get("initial_accumulator_value", 0.1)), "learning_rate",
    "initial_accumulator_value")
AdamOptimizer = _optimizer(
    "AdamOptimizer",
    lambda s: _optim.Adam(s.get("learning_rate", 0.001), s.get("beta1", 0.9), s.get("beta2", 0.999),
                          s.get("epsilon", 1e-8)), "learning_rate", "beta1", "beta2", "epsilon")
FtrlOptimizer = _optimizer(
    "FtrlOptimizer",
    lambda s: _optim.Ftrl(s["learning_rate"], s.get("initial_accumulator_value", 0.1), s.get("learning_rate_power", -0.5),
                          s.get("l1_regularization_strength", 0.0), s.get("l2_regularization_strength", 0.0)),
    "learning_rate", "learning_rate_power", "initial_accumulator_value", "l1_regularization_strength",
    "l2_regularization_strength")
RMSPropOptimizer = _optimizer(
    "RMSPropOptimizer",
    lambda s: _optim.RMSProp(s["learning_rate"], s.get("decay", 0.9), s.get("momentum", 0.0), s.get("epsilon", 1e-10),
                             s.get("centered", False), initial_accumulator=1.0),
    "learning_rate", "decay", "momentum", "epsilon", "use_locking", "centered")


class ExponentialMovingAverage:
    """tf.train.ExponentialMovingAverage: shadows of variables, which begin as these do."""

    def __init__(self, decay, num_updates=None, zero_debias=False, name="ExponentialMovingAverage"):
        if num_updates is not None or zero_debias:
            raise _errors.UnimplementedError(None, None, "ExponentialMovingAverage(num_updates=..., zero_debias=...)")
        self._decay, self._name, self._shadows = float(decay), name, {}

    def apply(self, var_list=None):
        from braid.compat.v1._variables import make_variable, trainable_variables
        made = []
        for variable in trainable_variables() if var_list is None else var_list:
            if variable not in self._shadows:
                self._shadows[variable] = make_variable(f"{variable.variable_name}/{self._name}", variable.initial_value, False)
            shadow = self._shadows[variable]
            made.append(shadow.assign_sub((shadow - variable) * (1.0 - self._decay)))
        return ops.group(*made, name=self._name)

    def average(self, var):
        return self._shadows.get(var)

    def average_name(self, var):
        return f"{var.variable_name}/{self._name}"

    def variables_to_restore(self, moving_avg_variables=None):
        return {self.average_name(each): each for each in self._shadows}


def write_graph(graph_or_graph_def, logdir, name, as_text=True):
    """Writes the graph as a GraphDef; its path."""
    import os
    path = os.path.join(logdir, name)
    os.makedirs(logdir, exist_ok=True)
    graph_or_graph_def.write(path if not as_text or path.endswith(".pbtxt") else path + ".pbtxt")
    return path


def mark_target_node(nodes):
    """Nodes that the program runs; stages are cut by tf.staged, so this only remembers them."""
    default_graph().collections.setdefault("__targets", []).extend(nodes)


class _NoWriter:
    def __init__(self, *_, **__):
        say_once("summaries are not written: bd.callbacks.TensorBoard writes a Trainer's")

    def __getattr__(self, name):
        return lambda *_, **__: None


def _no_summary(name):
    say_once(f"summary '{name}' is not written")


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


def __getattr__(name):
    if name.endswith("Optimizer"):
        raise AttributeError(f"braid.compat.v1.train has no '{name}': there are GradientDescent, Momentum, Adagrad, Adam, RMSProp "
                             "and Ftrl; bd.optim has more, for bd.Trainer")
    raise AttributeError(f"braid.compat.v1.train has no '{name}': docs/user/python.md lists what runs")
