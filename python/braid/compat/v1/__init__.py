"""TensorFlow 1's names over Braid's graphs and sessions: `import braid.compat.v1 as tf`.

What is here runs with TensorFlow's meaning. What has no effect is accepted and said once (logger "braid"). What is not
here is refused by name when it is used. docs/user/python.md has the list.
"""

import contextlib as _contextlib
import glob as _glob
import os as _os
import shutil as _shutil

import numpy as _np

from braid import nn as _bnn, ops as _ops
from braid import graph as _graph, scopes as _scopes
from braid.dtypes import (DType, as_dtype, bool_ as bool, float16, float32, float64, int8, int16, int32, int64, resource,
                          string, uint8, uint16, uint32, uint64)
from braid.attrs import Shape as TensorShape
from braid.graph import Graph, Operation, Tensor, Variable as _Variable
from braid.graph import default_graph as get_default_graph, reset_default_graph as _reset
from braid.compat.v1 import _config, _finder, app, cuda, data, errors, layers, losses, nn, train
from braid.compat.v1.app import flags
from braid.compat.v1._config import (ConfigProto, GPUOptions, GraphOptions, OptimizerOptions, RunMetadata, RunOptions,
                                     say_once as _say_once)
from braid.compat.v1._math import norm, placeholder_with_default, reduce_logsumexp, tensordot
from braid.compat.v1._input import TextLineReader, TFRecordReader, WholeFileReader
from braid.compat.v1._session import InteractiveSession, Session, get_default_session
from braid.compat.v1._variables import (GraphKeys, VariableScope, add_to_collection, all_variables, constant_initializer,
                                        fixed_size_partitioner, get_collection, get_variable, get_variable_scope, glorot_normal_initializer,
                                        glorot_uniform_initializer, global_variables, global_variables_initializer,
                                        initialize_all_variables, local_variables, local_variables_initializer,
                                        min_max_variable_partitioner, ones_initializer, random_normal_initializer, random_uniform_initializer,
                                        report_uninitialized_variables, trainable_variables,
                                        truncated_normal_initializer, Variable, variable_axis_size_partitioner,
                                        variable_scope, variables_initializer,
                                        zeros_initializer, AUTO_REUSE, make_variable as _make_variable)
from braid.ops import (add_n, argmax, argmin, as_string, cast, concat as _concat, decode_csv as _decode_csv, expand_dims as
                       _expand_dims, fill, gather, identity, matmul as _matmul, ones_like, pad, random_normal,
                       random_uniform, range, reduce_all, reduce_any, reduce_max, reduce_mean, reduce_min, reduce_prod,
                       reduce_sum, reshape, shape, slice, split, squeeze as _squeeze, stack, string_to_hash_bucket,
                       string_to_hash_bucket_fast, string_to_number, tile, transpose, truncated_normal, unstack,
                       zeros_like)
from braid.losses import sigmoid as _sigmoid_loss

_finder.install()
__version__ = "1.15.0-braid"
newaxis = None


def _simple(op):
    def function(*inputs, name=None):
        return _ops.call(op, list(inputs), name=name)

    function.__doc__ = getattr(_ops, _ops._snake(op)).__doc__
    return function


add, subtract, multiply, divide = _simple("AddV2"), _simple("Sub"), _simple("Mul"), _simple("RealDiv")
pow, square, sqrt, rsqrt, exp, log, log1p = (_simple(each) for each in ("Pow", "Square", "Sqrt", "Rsqrt", "Exp", "Log",
                                                                       "Log1p"))
abs, negative, sign, tanh, sigmoid, floor, ceil, round = (_simple(each) for each in (
    "Abs", "Neg", "Sign", "Tanh", "Sigmoid", "Floor", "Ceil", "Round"))
maximum, minimum, equal, not_equal, less, less_equal, greater, greater_equal = (_simple(each) for each in (
    "Maximum", "Minimum", "Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"))
logical_and, logical_or, logical_not = _simple("LogicalAnd"), _simple("LogicalOr"), _simple("LogicalNot")
stop_gradient, rank, size, floordiv = _simple("StopGradient"), _simple("Rank"), _simple("Size"), _simple("FloorDiv")
truediv = div = divide
sin, cos, erf, is_nan, is_inf, is_finite, floormod = (_simple(each) for each in (
    "Sin", "Cos", "Erf", "IsNan", "IsInf", "IsFinite", "FloorMod"))
mod, squared_difference = _simple("FloorMod"), _simple("SquaredDifference")


def _with_integers(op):
    """Of an op whose inputs behind the first are integers."""

    def function(values, *integers, name=None):
        graph = get_default_graph()
        return _ops.call(op, [graph.convert(values)] + [
            each if isinstance(each, Tensor) else graph.constant(_np.asarray(each, _np.int32)) for each in integers], name=name)

    function.__doc__ = getattr(_ops, _ops._snake(op)).__doc__
    return function


gather_nd, segment_sum, segment_mean, unsorted_segment_sum = (_with_integers(each) for each in (
    "GatherNd", "SegmentSum", "SegmentMean", "UnsortedSegmentSum"))


def matmul(a, b, transpose_a=False, transpose_b=False, adjoint_a=False, adjoint_b=False, a_is_sparse=False,
           b_is_sparse=False, name=None):
    """tf.matmul; adjoints of numbers that are not complex are transposed."""
    transpose_a, transpose_b = transpose_a or adjoint_a, transpose_b or adjoint_b
    return _ops.matmul(a, b, transpose_a, transpose_b, name)


def placeholder(dtype, shape=None, name=None):
    """tf.placeholder."""
    return _scopes.placeholder(name or "Placeholder", shape, dtype)


def constant(value, dtype=None, shape=None, name="Const", verify_shape=False):
    """tf.constant; one value fills the shape, fewer than the shape has repeat the last."""
    if shape is not None:
        flat = _np.asarray(value).ravel()
        count = int(_np.prod(shape)) if len(shape) else 1
        if 1 < flat.size < count:
            value = _np.concatenate([flat, _np.repeat(flat[-1:], count - flat.size)])
    return _scopes.constant(value, dtype, shape, name)


def convert_to_tensor(value, dtype=None, name=None, **_):
    return value if isinstance(value, Tensor) else get_default_graph().convert(value, dtype, name)


def concat(values=None, axis=None, name="concat", concat_dim=None):
    """tf.concat(values, axis)."""
    axis = concat_dim if axis is None else axis
    if isinstance(values, int):  # before TensorFlow 1.0 the axis came first
        values, axis = axis, values
    return _ops.concat(values if isinstance(values, (list, tuple)) else [values], axis, name)


def expand_dims(input, axis=None, name=None, dim=None):
    return _ops.expand_dims(input, dim if axis is None else axis, name)


def squeeze(input, axis=None, name=None, squeeze_dims=None):
    return _ops.squeeze(input, squeeze_dims if axis is None else axis, name)


def zeros(shape, dtype=float32, name=None):
    return _ops.zeros(shape, dtype, name) if _is_static(shape) else fill(shape, _np.zeros((), as_dtype(dtype).numpy))


def ones(shape, dtype=float32, name=None):
    return _ops.ones(shape, dtype, name) if _is_static(shape) else fill(shape, _np.ones((), as_dtype(dtype).numpy))


def _is_static(shape):
    return not isinstance(shape, Tensor) and all(isinstance(each, (int, _np.integer)) for each in shape)


def one_hot(indices, depth, on_value=1.0, off_value=0.0, axis=-1, dtype=float32, name=None):
    made = _ops.one_hot(indices, depth, on_value, off_value, axis, name)
    return made if dtype == float32 else cast(made, dtype)


def where(condition, x=None, y=None, name=None):
    return _ops.where(condition, x, y, name)


def clip_by_value(t, clip_value_min, clip_value_max, name=None):
    return minimum(maximum(t, clip_value_min), clip_value_max)


def global_norm(t_list, name=None):
    """The root of the sum of all squares; rows of IndexedSlices count each by itself."""
    halves = [_ops.call("L2Loss", [getattr(each, "values", each)]) for each in t_list if each is not None]
    return sqrt(add_n(halves) * 2.0)


def clip_by_global_norm(t_list, clip_norm, use_norm=None, name=None):
    """(values scaled down together where their norm is larger, the norm)."""
    norm = global_norm(t_list) if use_norm is None else use_norm
    scale = float(clip_norm) / maximum(norm, float(clip_norm))
    return [each if each is None else IndexedSlices(each.values * scale, each.indices, each.dense_shape)
            if isinstance(each, IndexedSlices) else each * scale for each in t_list], norm


def clip_by_norm(t, clip_norm, axes=None, name=None):
    norm = sqrt(reduce_sum(square(t), axes, keepdims=True))
    return t * float(clip_norm) / maximum(norm, float(clip_norm))


def cumsum(x, axis=0, exclusive=False, reverse=False, name=None):
    """tf.cumsum."""
    return _ops.call("Cumsum", [x, _np.int32(axis)], {"exclusive": exclusive, "reverse": reverse}, name)


def einsum(equation, *inputs, name=None, optimize=None):
    """tf.einsum."""
    return _ops.call("Einsum", list(inputs), {"equation": equation, "N": len(inputs)})


def eye(num_rows, num_columns=None, batch_shape=None, dtype=float32, name=None):
    """tf.eye of known sizes."""
    errors.only("tf.eye", {"batch_shape": batch_shape})
    return get_default_graph().constant(_np.eye(num_rows, num_columns), dtype, name=name or "eye")


def sequence_mask(lengths, maxlen=None, dtype=bool, name=None):
    """[..., maxlen]: true before each length; maxlen must be known."""
    if not isinstance(maxlen, int):
        raise errors.UnimplementedError(None, None, "tf.sequence_mask without a known maxlen")
    lengths = get_default_graph().convert(lengths)
    places = get_default_graph().constant(_np.arange(maxlen), lengths.dtype)
    made = _ops.call("Less", [places, _ops.expand_dims(lengths, -1)])
    return made if as_dtype(dtype) == bool else cast(made, dtype)


def decode_csv(records, record_defaults, field_delim=",", use_quote_delim=True, name=None, na_value="", select_cols=None):
    errors.only("tf.decode_csv", {"select_cols": select_cols})
    return _decode_csv(records, record_defaults, field_delim, use_quote_delim, na_value, name)


def group(*inputs, name=None, **_):
    return _ops.group(*inputs, name=name)


def no_op(name=None):
    return get_default_graph().add("NoOp", [], None, name)


def tuple(tensors, name=None, control_inputs=None):
    with control_dependencies([each for each in tensors if each is not None] + list(control_inputs or [])):
        return [each if each is None else identity(each) for each in tensors]


def assign(ref, value, name=None, **_):
    return ref.assign(value, name)


def assign_add(ref, value, name=None, **_):
    return ref.assign_add(value, name)


def assign_sub(ref, value, name=None, **_):
    return ref.assign_sub(value, name)


def gradients(ys, xs, grad_ys=None, name="gradients", colocate_gradients_with_ops=False, gate_gradients=False,
              aggregation_method=None, stop_gradients=None, unconnected_gradients=None):
    """Gradients of a scalar, or of the sum of several, by variables. By other values they are refused."""
    errors.only("tf.gradients", {"stop_gradients": stop_gradients, "unconnected_gradients": unconnected_gradients})
    single = not isinstance(xs, (list, type(())))
    xs = [xs] if single else list(xs)
    for each in xs:
        if not isinstance(each, _Variable):
            raise errors.UnimplementedError(None, None, f"tf.gradients by '{each.name}': only by variables")
    if grad_ys is not None:
        raise errors.UnimplementedError(None, None, "tf.gradients(grad_ys=...)")
    total = _sum_of(ys)
    found = train.Optimizer._gradients(total)
    return [found.get(each) for each in xs]


def _sum_of(ys):
    parts = [each if each.shape == () else reduce_sum(each) for each in (ys if isinstance(ys, list) else [ys])]
    return parts[0] if len(parts) == 1 else add_n(parts)


class IndexedSlices:
    """Rows of a gradient."""

    def __init__(self, values, indices, dense_shape=None):
        self.values, self.indices, self.dense_shape = values, indices, dense_shape


# -------------------------------------------------------------------------------------------------------------- scopes
def stream(stream_id):
    """tf.stream: nodes inside, and their gradients, run on that stream; -1 takes them off it."""
    return get_default_graph().stream(stream_id)


@_contextlib.contextmanager
def colocate_with(op, ignore_existing=False):
    """tf.colocate_with: nodes inside run where that one does."""
    target = op.outputs[0] if isinstance(op, Operation) and op.outputs else op
    with get_default_graph().colocate(target):
        yield


@_contextlib.contextmanager
def device(device_name_or_function):
    """tf.device. Other tasks' names place nothing: each process runs its own graph."""
    name = device_name_or_function
    if callable(name):
        name = getattr(name, "device", "")
    if name and ("/job:" in name or "/task:" in name):
        _say_once(f"tf.device('{name}'): a process runs its own graph; other tasks' devices place nothing")
        name = "/" + name.split("/")[-1] if "device:" in name.split("/")[-1] else ""
    with get_default_graph().device(name or ""):
        yield


def control_dependencies(control_inputs):
    """tf.control_dependencies."""
    return get_default_graph().control_dependencies(control_inputs)


@_contextlib.contextmanager
def name_scope(name, default_name=None, values=None):
    """tf.name_scope."""
    name = name or default_name
    if not name:
        yield ""
        return
    with get_default_graph().name_scope(name.rstrip("/")) as scope:
        yield get_default_graph().scoped("")


def staged(features, feed_dict=None, capacity=1, num_threads=1, num_clients=1, timeout_millis=300000,
           closed_exception_types=(errors.OutOfRangeError,), ignored_exception_types=(),
           use_stage_subgraph_thread_pool=False, stage_subgraph_thread_pool_id=0, stage_subgraph_stream_id=0, name=None):
    """tf.staged: evaluates `features` ahead of the step; a list comes back as a list."""
    closed, ignored = ([errors.kind_of(each) for each in kinds] for kinds in
                       (closed_exception_types, ignored_exception_types))
    return _scopes.staged(features, feed_dict, name, capacity=capacity, num_threads=num_threads, num_clients=num_clients,
                         timeout_millis=timeout_millis, closed_exception_types=closed, ignored_exception_types=ignored,
                         use_stage_subgraph_thread_pool=use_stage_subgraph_thread_pool,
                         stage_subgraph_thread_pool_id=stage_subgraph_thread_pool_id,
                         stage_subgraph_stream_id=stage_subgraph_stream_id)


def make_prefetch_hook():
    """tf.make_prefetch_hook: begins the stages with the session and ends them with it."""
    return train._PrefetchHook()


def set_random_seed(seed):
    get_default_graph().seed = seed


def is_variable_initialized(variable):
    raise errors.UnimplementedError(None, None, "tf.is_variable_initialized")


def disable_v2_behavior():
    """Nothing to disable."""


disable_eager_execution = disable_v2_behavior


def executing_eagerly():
    return False


def function(func=None, **_):
    """tf.function: the function itself, as graphs are built by running it."""
    return func if func is not None else (lambda wrapped: wrapped)


class _Namespace:
    def __init__(self, **names):
        self.__dict__.update(names)


math = _Namespace(reduce_sum=reduce_sum, reduce_mean=reduce_mean, add=add, multiply=multiply, log=log, exp=exp,
                  sigmoid=sigmoid, tanh=tanh, matmul=matmul, square=square, sqrt=sqrt, maximum=maximum, minimum=minimum)
strings = _Namespace(to_hash_bucket=string_to_hash_bucket, to_hash_bucket_fast=string_to_hash_bucket_fast,
                     as_string=as_string, to_number=string_to_number)
initializers = _Namespace(global_variables=global_variables_initializer, variables=variables_initializer,
                          local_variables=local_variables_initializer, zeros=zeros_initializer, ones=ones_initializer,
                          constant=constant_initializer, random_normal=random_normal_initializer,
                          random_uniform=random_uniform_initializer)
logging = _Namespace(DEBUG=10, INFO=20, WARN=30, ERROR=40, FATAL=50, set_verbosity=lambda level: None,
                     info=__import__("logging").getLogger("braid").info,
                     warning=__import__("logging").getLogger("braid").warning,
                     warn=__import__("logging").getLogger("braid").warning,
                     error=__import__("logging").getLogger("braid").error)
summary = _Namespace(scalar=lambda name, tensor, **_: train._no_summary(name),
                     histogram=lambda name, values, **_: train._no_summary(name),
                     merge_all=lambda *_, **__: None, FileWriter=train._NoWriter)
merge_all_summaries = getattr(summary, "merge_all")


test = _Namespace(is_gpu_available=lambda *_, **__: False, gpu_device_name=lambda: "", is_built_with_cuda=lambda: False,
                  TestCase=__import__("unittest").TestCase, main=__import__("unittest").main)
gfile = _Namespace(Exists=_os.path.exists, IsDirectory=_os.path.isdir, ListDirectory=_os.listdir, MkDir=_os.mkdir,
                   MakeDirs=lambda path: _os.makedirs(path, exist_ok=True), Remove=_os.remove, Glob=_glob.glob,
                   DeleteRecursively=_shutil.rmtree, GFile=open, FastGFile=open, Open=open)


def reset_default_graph():
    """tf.reset_default_graph."""
    _reset()


# What only TensorFlow builds graphs of.
_FROM_FILES = {"cond", "case", "while_loop", "TensorArray", "scan", "map_fn", "foldl", "SparseTensor",
               "sparse_placeholder", "feature_column", "estimator"}


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    if name == "keras":
        raise AttributeError("braid.compat.v1 has no 'keras': train the model by bd.io.keras(model)")
    if name in _FROM_FILES:
        raise AttributeError(f"braid.compat.v1 has no '{name}': build the graph with TensorFlow, write it "
                             "(tf.train.export_meta_graph) and train that: bd.io.graph(\"model.meta\", loss=...)")
    hint = f"; bd.ops.{name} is one of Braid's" if hasattr(_ops, name) else ""
    raise AttributeError(f"braid.compat.v1 has no '{name}': docs/user/python.md lists what runs{hint}")
