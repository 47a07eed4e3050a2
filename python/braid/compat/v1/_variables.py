"""Variables, their scopes, initializers and collections."""

import contextlib
import math

import numpy as np

from braid import dtypes, ops
from braid.compat.v1.errors import only
from braid.dtypes import as_dtype, float32
from braid.graph import Variable as _Variable, default_graph


class GraphKeys:
    GLOBAL_VARIABLES = VARIABLES = "variables"
    TRAINABLE_VARIABLES = "trainable_variables"
    LOCAL_VARIABLES = "local_variables"
    UPDATE_OPS = "update_ops"
    REGULARIZATION_LOSSES = "regularization_losses"
    LOSSES = "losses"
    SUMMARIES = "summaries"
    GLOBAL_STEP = "global_step"


AUTO_REUSE = "auto_reuse"


def add_to_collection(name, value):
    default_graph().collections.setdefault(name, []).append(value)


def get_collection(key, scope=None):
    found = list(default_graph().collections.get(key, []))
    return [each for each in found if scope is None or each.name.startswith(scope)]


# -------------------------------------------------------------------------------------------------------- initializers
class _Initializer:
    """shape -> Tensor, in the node's graph."""

    def __init__(self, make):
        self._make = make

    def __call__(self, shape, dtype=float32, **_):
        return self._make([int(each) for each in shape], as_dtype(dtype))


def _constants(value):
    def make(shape, dtype):
        return default_graph().constant(np.full(shape, value, dtype.numpy) if np.ndim(value) == 0 else
                                        np.asarray(value, dtype.numpy).reshape(shape))

    return _Initializer(make)


def zeros_initializer(dtype=float32):
    return _constants(0)


def ones_initializer(dtype=float32):
    return _constants(1)


def constant_initializer(value=0, dtype=float32, **_):
    return _constants(value)


def random_normal_initializer(mean=0.0, stddev=1.0, seed=None, dtype=float32):
    return _Initializer(lambda shape, dtype: ops.random_normal(shape, mean, stddev))


def truncated_normal_initializer(mean=0.0, stddev=1.0, seed=None, dtype=float32):
    return _Initializer(lambda shape, dtype: ops.truncated_normal(shape, mean, stddev))


def random_uniform_initializer(minval=-0.05, maxval=0.05, seed=None, dtype=float32):
    return _Initializer(lambda shape, dtype: ops.random_uniform(shape, minval, maxval))


def _fans(shape):
    area = int(np.prod(shape[:-2])) if len(shape) > 2 else 1
    return (area * shape[-2], area * shape[-1]) if len(shape) > 1 else (shape[0] if shape else 1,) * 2


def glorot_uniform_initializer(seed=None, dtype=float32):
    def make(shape, dtype):
        limit = math.sqrt(6.0 / sum(_fans(shape)))
        return ops.random_uniform(shape, -limit, limit)

    return _Initializer(make)


def glorot_normal_initializer(seed=None, dtype=float32):
    return _Initializer(lambda shape, dtype: ops.truncated_normal(shape, 0.0, math.sqrt(2.0 / sum(_fans(shape))) / 0.87962566103423978))


# ----------------------------------------------------------------------------------------------------------- variables
def make_variable(name, value, trainable=True, dtype=None, collections=None):
    """A variable whose initializer assigns `value`."""
    graph = default_graph()
    with graph.control_dependencies([]):
        controls, graph._controls = graph._controls, []
        try:
            value = graph.convert(value() if callable(value) else value, dtype)
            if value.shape is None or not value.shape.is_fully_defined():
                raise ValueError(f"variable '{name}': the shape of its initial value is not known")
            made = graph.add_variable(name, value.shape, value.dtype, None, trainable)
            made.initializer = graph.add("AssignVariableOp", [made.handle, value], {"dtype": value.dtype},
                                         f"{name}/Assign")
        finally:
            graph._controls = controls
    made.initial_value = value
    for key in collections or [GraphKeys.GLOBAL_VARIABLES]:
        add_to_collection(key, made)
    if trainable:
        add_to_collection(GraphKeys.TRAINABLE_VARIABLES, made)
    return made


def fixed_size_partitioner(num_shards, axis=0):
    """tf.fixed_size_partitioner, for get_variable, which makes the variable whole."""
    return lambda shape, dtype=None: [int(num_shards) if each == axis else 1 for each in range(len(shape))]


def variable_axis_size_partitioner(max_shard_bytes, axis=0, bytes_per_string_element=16, max_shards=None):
    return fixed_size_partitioner(max_shards or 1, axis)


def min_max_variable_partitioner(max_partitions=1, axis=0, min_slice_size=256 << 10, bytes_per_string_element=16):
    return fixed_size_partitioner(max_partitions, axis)


class _VariableType(type):
    def __instancecheck__(cls, instance):
        return isinstance(instance, _Variable)


class Variable(metaclass=_VariableType):
    """tf.Variable(initial_value, trainable, name): the value assigned by its initializer."""

    def __new__(cls, initial_value=None, trainable=True, collections=None, validate_shape=True, caching_device=None,
                name=None, variable_def=None, dtype=None, expected_shape=None, import_scope=None, constraint=None, **_):
        only("tf.Variable", {"variable_def": variable_def, "constraint": constraint})
        return make_variable(name or "Variable", initial_value, trainable, dtype, collections)


class VariableScope:
    """tf.variable_scope's object: its name, reuse and defaults."""

    def __init__(self, name, reuse=False, initializer=None, regularizer=None):
        self.name, self.original_name_scope, self.reuse = name, name, reuse
        self.initializer, self.regularizer = initializer, regularizer

    def reuse_variables(self):
        self.reuse = True


def _scopes():
    return default_graph().collections.setdefault("__variable_scopes", [VariableScope("")])


def get_variable_scope():
    return _scopes()[-1]


@contextlib.contextmanager
def variable_scope(name_or_scope=None, default_name=None, values=None, initializer=None, regularizer=None,
                   caching_device=None, partitioner=None, custom_getter=None, reuse=None, dtype=float32, use_resource=None,
                   constraint=None, auxiliary_name_scope=True):
    """tf.variable_scope: names of get_variable, and of nodes; defaults of its variables."""
    only("tf.variable_scope", {"custom_getter": custom_getter, "constraint": constraint,
                               "dtype": None if dtype in (None, float32) else dtype})
    outer = get_variable_scope()
    if isinstance(name_or_scope, VariableScope):
        full, short = name_or_scope.name, name_or_scope.name.split("/")[-1]
    else:
        short = name_or_scope or default_name
        full = f"{outer.name}/{short}" if outer.name else short
    if reuse is None:
        reuse = outer.reuse
    scope = VariableScope(full, reuse, initializer or outer.initializer, regularizer or outer.regularizer)
    _scopes().append(scope)
    try:
        if short:
            with default_graph().name_scope(short):
                yield scope
        else:
            yield scope
    finally:
        _scopes().pop()


def get_variable(name, shape=None, dtype=float32, initializer=None, regularizer=None, trainable=True, collections=None,
                 caching_device=None, partitioner=None, validate_shape=True, use_resource=None, custom_getter=None,
                 constraint=None, **_):
    """tf.get_variable: makes the variable, or under reuse gives the one that is there. What a regularizer makes of it is
    in REGULARIZATION_LOSSES."""
    only("tf.get_variable", {"custom_getter": custom_getter, "constraint": constraint})
    graph, scope = default_graph(), get_variable_scope()
    if partitioner is not None:
        from braid.compat.v1._config import say_once
        say_once("get_variable: a partitioner has no effect: tables are spread over servers row by row")
    full = f"{scope.name}/{name}" if scope.name else name
    known = graph.collections.setdefault("__named_variables", {})
    if full in known:
        if not scope.reuse:
            raise ValueError(f"variable '{full}' exists already: variable_scope(..., reuse=True) gives it")
        return known[full]
    if scope.reuse is True:
        raise ValueError(f"variable '{full}' does not exist, and its scope says reuse")
    initializer = scope.initializer if initializer is None else initializer
    if initializer is None:
        initializer = glorot_uniform_initializer() if as_dtype(dtype).is_floating else zeros_initializer()
    if isinstance(initializer, type):
        initializer = initializer()
    names, graph._names = graph._names, []
    try:
        if callable(initializer):
            shape = [shape] if isinstance(shape, int) else ([] if shape is None else shape)
            value = initializer(shape, as_dtype(dtype))
            value = value if value.dtype == as_dtype(dtype) else ops.cast(value, dtype)
        else:
            value = initializer
        made = known[full] = make_variable(full, value, trainable, dtype, collections)
        regularizer = scope.regularizer if regularizer is None else regularizer
        loss = regularizer(made) if regularizer is not None else None
        if loss is not None:
            add_to_collection(GraphKeys.REGULARIZATION_LOSSES, loss)
    finally:
        graph._names = names
    return made


def global_variables(scope=None):
    return [each for each in default_graph().variables if scope is None or each.name.startswith(scope)]


all_variables = global_variables


def trainable_variables(scope=None):
    return [each for each in global_variables(scope) if each.trainable]


def local_variables(scope=None):
    return get_collection(GraphKeys.LOCAL_VARIABLES, scope)


def variables_initializer(var_list, name="init"):
    """An Operation that gives these variables their initial values."""
    return ops.group(*[each.initializer for each in var_list if each.initializer is not None], name=name)


def global_variables_initializer():
    return variables_initializer(global_variables())


initialize_all_variables = global_variables_initializer


def local_variables_initializer():
    return ops.group(name="init_local")


initialize_local_variables = local_variables_initializer


def report_uninitialized_variables(*_, **__):
    return default_graph().constant(np.asarray([], dtype=object), dtypes.string)


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
        found = make_variable("global_step", np.int64(0), trainable=False, dtype=dtypes.int64)
        add_to_collection(GraphKeys.GLOBAL_STEP, found)
    return found
