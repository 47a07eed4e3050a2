"""One function for each registered op, in lower case with underscores: `bd.ops.batch_mat_mul_v2(a, b, adj_x=True)`.

Functions of this file have the parameters that programs use; the rest is made from the registry: inputs by position,
attributes by TensorFlow's names, `name` for the node. Inputs may be arrays and numbers, which become constants. Types
and shapes are checked as the node is made. Throws: InvalidArgument naming the node.
"""

import builtins
import keyword
import re
import sys

import numpy as np

from braid import _braid, dtypes
from braid.dtypes import as_dtype
from braid.graph import Assignment, Tensor, default_graph


def _graph_of(values):
    """That of the tensors among these; the default one where there are none, or of several graphs."""
    parts = [each for value in values for each in (value if isinstance(value, (list, tuple)) else (value,))]
    graphs = {id(each.graph): each.graph for each in parts if isinstance(each, Tensor)}
    return next(iter(graphs.values())) if len(graphs) == 1 else default_graph()


def call(op, inputs, attrs=None, name=None):
    """Adds a node of that op; its output, a list of several outputs, or the Operation where it has none."""
    inputs = [each.as_tensor() if isinstance(each, Assignment) else each for each in inputs]
    graph = _graph_of(inputs)
    like = next((each.dtype for each in inputs if isinstance(each, Tensor)), None)
    values = []
    for each in inputs:
        keep = isinstance(each, (np.ndarray, np.generic, str, bytes, builtins.bool)) or like is None
        values.append(graph.convert(each, None if keep else like))
    made = graph.add(op, values, attrs, name)
    if not made.outputs:
        return made
    return made.outputs[0] if len(made.outputs) == 1 else made.outputs


def _ints(values):
    return values if isinstance(values, Tensor) else np.asarray(values, dtype=np.int32)


# --------------------------------------------------------------------------------------------------- with parameters
def identity(input, name=None):
    """The value itself, as a node."""
    return call("Identity", [input], name=name)


def cast(x, dtype, name=None):
    """Elements as another type."""
    return call("Cast", [x], {"DstT": as_dtype(dtype)}, name)


def matmul(a, b, transpose_a=False, transpose_b=False, name=None):
    """[M, K] x [K, N] -> [M, N]; of more dimensions, products of the last two with broadcasting."""
    graph = _graph_of([a, b])
    a = graph.convert(a)
    b = graph.convert(b, a.dtype)
    a = a if isinstance(a, Tensor) else graph.convert(a, b.dtype)
    if (a.shape is not None and len(a.shape) > 2) or (b.shape is not None and len(b.shape) > 2):
        return call("BatchMatMulV2", [a, b], {"adj_x": transpose_a, "adj_y": transpose_b}, name)
    return call("MatMul", [a, b], {"transpose_a": transpose_a, "transpose_b": transpose_b}, name)


def reshape(tensor, shape, name=None):
    """The same elements in another shape; one dimension may be -1."""
    if not isinstance(shape, Tensor):
        shape = _shape_value(shape)
    return call("Reshape", [tensor, shape], name=name)


def _shape_value(shape):
    shape = [shape] if isinstance(shape, int) else list(shape)
    if builtins.any(isinstance(each, Tensor) for each in shape):
        return call("Pack", [each if isinstance(each, Tensor) else np.int32(each) for each in shape],
                    {"axis": 0, "N": len(shape)})
    return np.asarray([-1 if each is None else each for each in shape], dtype=np.int32)


def concat(values, axis, name=None):
    """Values side by side along an axis; a negative one counts from the last."""
    values = list(values)
    graph = _graph_of(values)
    like = next((each.dtype for each in values if isinstance(each, Tensor)), None)
    values = [graph.convert(each, like) for each in values]
    if len(values) == 1:
        return identity(values[0], name=name)
    return call("ConcatV2", values + [np.int32(axis)], {"N": len(values)}, name or "concat")


def stack(values, axis=0, name=None):
    """Values on top of each other along a new axis."""
    return call("Pack", list(values), {"axis": axis, "N": len(values)}, name or "stack")


def unstack(value, num=None, axis=0, name=None):
    """The inverse of stack: a list."""
    num = num if num is not None else value.shape[axis]
    made = call("Unpack", [value], {"axis": axis, "num": num}, name)
    return made if isinstance(made, list) else [made]


def split(value, num_or_sizes, axis=0, name=None):
    """A list of parts along an axis: so many equal ones, or of these sizes."""
    if isinstance(num_or_sizes, int):
        made = call("Split", [np.int32(axis), value], {"num_split": num_or_sizes}, name)
    else:
        made = call("SplitV", [value, np.asarray(num_or_sizes, np.int32), np.int32(axis)],
                    {"num_split": len(num_or_sizes)}, name)
    return made if isinstance(made, list) else [made]


def squeeze(input, axis=None, name=None):
    """Without dimensions of 1, or without these."""
    axis = [] if axis is None else [axis] if isinstance(axis, int) else list(axis)
    return call("Squeeze", [input], {"squeeze_dims": ("li", axis)}, name)


def expand_dims(input, axis, name=None):
    """With a dimension of 1 at `axis`."""
    return call("ExpandDims", [input, np.int32(axis)], name=name)


def transpose(a, perm=None, name=None):
    """Dimensions in another order; reversed where `perm` is None."""
    perm = list(builtins.range(len(a.shape)))[::-1] if perm is None else perm
    return call("Transpose", [a, _ints(perm)], name=name)


def gather(params, indices, axis=0, name=None):
    """Slices of `params` along `axis` at `indices`."""
    return call("GatherV2", [params, indices, np.int32(axis)], name=name)


def tile(input, multiples, name=None):
    """Repeated along each dimension."""
    return call("Tile", [input, _ints(multiples)], name=name)


def fill(dims, value, name=None):
    """A tensor of one value."""
    return call("Fill", [_shape_value(dims) if not isinstance(dims, Tensor) else dims, value], name=name)


def zeros(shape, dtype=dtypes.float32, name=None):
    """Zeros."""
    return default_graph().constant(np.zeros(tuple(shape), as_dtype(dtype).numpy), name=name or "zeros")


def ones(shape, dtype=dtypes.float32, name=None):
    """Ones."""
    return default_graph().constant(np.ones(tuple(shape), as_dtype(dtype).numpy), name=name or "ones")


def zeros_like(tensor, dtype=None, name=None):
    """Zeros of another tensor's shape and type."""
    made = call("ZerosLike", [tensor], name=name)
    return cast(made, dtype) if dtype else made


def ones_like(tensor, dtype=None, name=None):
    """Ones of another tensor's shape and type."""
    made = call("OnesLike", [tensor], name=name)
    return cast(made, dtype) if dtype else made


def shape(input, out_type=dtypes.int32, name=None):
    """The shape as a tensor."""
    return call("Shape", [input], {"out_type": as_dtype(out_type)}, name)


def range(start, limit=None, delta=1, name=None):
    """Numbers from `start` (0 where only one bound is given) below `limit`."""
    if limit is None:
        start, limit = 0, start
    like = next((each.dtype for each in (start, limit, delta) if isinstance(each, Tensor)), dtypes.int32)
    graph = _graph_of([start, limit, delta])
    return call("Range", [graph.convert(each, like) for each in (start, limit, delta)], name=name)


def one_hot(indices, depth, on_value=1.0, off_value=0.0, axis=-1, name=None):
    """on_value at each index along a new axis of `depth`, off_value elsewhere."""
    return call("OneHot", [indices, np.int32(depth), np.float32(on_value), np.float32(off_value)], {"axis": axis}, name)


def where(condition, x, y, name=None):
    """Elements of `x` where the condition holds, else of `y`; broadcasts."""
    return call("SelectV2", [condition, _graph_of([x, y]).convert(x, getattr(y, "dtype", None)),
                             _graph_of([x, y]).convert(y, getattr(x, "dtype", None))], name=name)


def _reduction(op, text):
    def reduce(input_tensor, axis=None, keepdims=False, name=None, keep_dims=None, reduction_indices=None):
        axis = reduction_indices if axis is None else axis
        value = input_tensor if isinstance(input_tensor, Tensor) else default_graph().convert(input_tensor)
        keep = keepdims if keep_dims is None else keep_dims
        if axis is None:
            if value.shape is None:
                value, axis = reshape(value, [-1]), 0
            else:
                axis = list(builtins.range(len(value.shape)))
        axes = axis if isinstance(axis, Tensor) else np.asarray(axis, np.int32).reshape(-1)
        return call(op, [value, axes], {"keep_dims": keep}, name)

    reduce.__doc__ = f"{text} over these axes, or all."
    return reduce


reduce_sum = _reduction("Sum", "The sum")
reduce_mean = _reduction("Mean", "The mean")
reduce_max = _reduction("Max", "The largest element")
reduce_min = _reduction("Min", "The least element")
reduce_prod = _reduction("Prod", "The product")
reduce_any = _reduction("Any", "Whether any element is true")
reduce_all = _reduction("All", "Whether all elements are true")


def argmax(input, axis=0, output_type=dtypes.int64, name=None):
    """The place of the largest element along an axis."""
    return call("ArgMax", [input, np.int32(axis)], {"output_type": as_dtype(output_type)}, name)


def argmin(input, axis=0, output_type=dtypes.int64, name=None):
    """The place of the least element along an axis."""
    return call("ArgMin", [input, np.int32(axis)], {"output_type": as_dtype(output_type)}, name)


def add_n(inputs, name=None):
    """The sum of values of one shape."""
    return call("AddN", list(inputs), {"N": len(inputs)}, name)


def pad(tensor, paddings, constant_value=0, name=None):
    """With `paddings` [[before, after], ...] of a constant around it."""
    graph = _graph_of([tensor])
    return call("PadV2", [tensor, _ints(paddings), graph.convert(constant_value, tensor.dtype)], name=name)


def slice(input, begin, size, name=None):
    """The box of `size` from `begin`."""
    return call("Slice", [input, _ints(begin), _ints(size)], name=name)


def group(*nodes, name=None):
    """An Operation that runs these (Operations or Tensors)."""
    flat = [each for node in nodes for each in (node if isinstance(node, (list, tuple)) else [node])]
    operations = [each.op if isinstance(each, Tensor) else each for each in flat if each is not None]
    graph = operations[0].graph if operations else default_graph()
    return graph.add("NoOp", [], None, name or "group_deps", operations)


def string_to_hash_bucket(input, num_buckets, name=None):
    """Words to numbers below `num_buckets`, by TensorFlow's old hash."""
    return call("StringToHashBucket", [input], {"num_buckets": num_buckets}, name)


def string_to_hash_bucket_fast(input, num_buckets, name=None):
    """Words to numbers below `num_buckets`, by TensorFlow's farmhash."""
    return call("StringToHashBucketFast", [input], {"num_buckets": num_buckets}, name)


def as_string(input, precision=-1, scientific=False, shortest=False, width=-1, fill="", name=None):
    """Numbers as text."""
    return call("AsString", [input], {"precision": precision, "scientific": scientific, "shortest": shortest,
                                      "width": width, "fill": fill}, name)


def decode_csv(records, record_defaults, field_delim=",", use_quote_delim=True, na_value="", name=None):
    """Fields of lines: a list of tensors of the defaults' types; an empty default means that the field is needed."""
    graph = _graph_of([records])
    defaults = []
    for each in record_defaults:
        array = np.asarray(each)
        kind = dtypes.string if array.dtype.kind in "SUO" else None
        defaults.append(graph.convert(each, kind) if not isinstance(each, Tensor) else each)
    made = call("DecodeCSV", [records] + defaults,
                {"OUT_TYPE": ("ltype", [each.dtype.number for each in defaults]), "field_delim": field_delim,
                 "use_quote_delim": use_quote_delim, "na_value": na_value}, name)
    return made if isinstance(made, list) else [made]


def string_to_number(input, out_type=dtypes.float32, name=None):
    """Words as numbers."""
    return call("StringToNumber", [input], {"out_type": as_dtype(out_type)}, name)


def random_normal(shape, mean=0.0, stddev=1.0, dtype=dtypes.float32, name=None):
    """Normal numbers, drawn anew in each run from (seed, node's name, run)."""
    return _scaled(_random("RandomStandardNormal", shape, name or "random_normal"), stddev, mean)


def truncated_normal(shape, mean=0.0, stddev=1.0, dtype=dtypes.float32, name=None):
    """Normal numbers within two deviations, drawn anew in each run."""
    return _scaled(_random("TruncatedNormal", shape, name or "truncated_normal"), stddev, mean)


def random_uniform(shape, minval=0.0, maxval=1.0, dtype=dtypes.float32, name=None):
    """Numbers in [minval, maxval), drawn anew in each run."""
    return _scaled(_random("RandomUniform", shape, name or "random_uniform"), maxval - minval, minval)


def _random(op, shape, name):
    value = shape if isinstance(shape, Tensor) else _shape_value(shape)
    return call(op, [value], {"dtype": dtypes.float32, "T": dtypes.int32}, name)


def _scaled(value, scale, shift):
    value = value if scale == 1 else value * scale
    return value if isinstance(shift, (int, float)) and shift == 0 else value + shift


def dropout(x, rate, name=None):
    """In training a share `rate` of the elements is 0 and the others are larger by 1 / (1 - rate)."""
    if not 0 <= rate < 1:
        raise _braid.InvalidArgument(f"dropout: rate must be in [0, 1), got {rate}")
    return x if rate == 0 else call("braid.Dropout", [x], {"rate": float(rate)}, name or "dropout")


def getitem(value, item):
    """value[item] as Python slices: numbers, slices, None and ..."""
    items = list(item) if isinstance(item, tuple) else [item]
    begin, end, strides, masks = [], [], [], {"begin_mask": 0, "end_mask": 0, "shrink_axis_mask": 0, "new_axis_mask": 0,
                                              "ellipsis_mask": 0}
    for i, each in enumerate(items):
        first, last, step = 0, 0, 1
        if each is Ellipsis:
            masks["ellipsis_mask"] |= 1 << i
        elif each is None:
            masks["new_axis_mask"] |= 1 << i
        elif isinstance(each, builtins.slice):
            step = 1 if each.step is None else each.step
            first, last = each.start or 0, each.stop or 0
            masks["begin_mask"] |= (each.start is None) << i
            masks["end_mask"] |= (each.stop is None) << i
        else:
            if isinstance(each, Tensor):
                return gather(value, each, i)
            first, last = each, each + 1
            masks["shrink_axis_mask"] |= 1 << i
        begin.append(first), end.append(last), strides.append(step)
    return call("StridedSlice", [value] + [np.asarray(each, np.int32) for each in (begin, end, strides)], masks,
                "strided_slice")


# ------------------------------------------------------------------------------------------------- from the registry
def _snake(op):
    op = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", op.replace("braid.", "braid_"))
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", op).lower()
    return f"{name}_" if keyword.iskeyword(name) else name


def _make(op, least, most, differentiable, reason, cpu, cuda, stateful, folds):
    count = str(least) if least == most else f"{least} or more" if most < 0 else f"{least} to {most}"

    def function(*inputs, name=None, **attrs):
        return call(op, list(inputs), attrs, name)

    where_it_runs = ", ".join(word for word, has in (("CPU", cpu), ("CUDA", cuda)) if has) or (
        "on the host, between programs" if folds else "as a view, nowhere")
    function.__module__ = __name__
    function.__name__ = function.__qualname__ = _snake(op)
    function.__doc__ = (f"{op}: {count} input{'s' * (count != '1')}. Gradient: "
                        f"{'yes' if differentiable else 'none: ' + reason}. Runs: {where_it_runs}."
                        f"{' Two runs may differ.' if stateful else ''}")
    return function


def load_library(path):
    """Loads a shared library with ops of your own (docs/user/own_ops.md) and gives each a function here: names of the
    ops. Throws: InvalidArgument for a file that is none, or was built for another Braid."""
    added = _braid.load_op_library(str(path))
    _add_registered()
    return added


def names():
    """Names of all registered ops."""
    return [each[0] for each in _braid.registered_ops()]


def _add_registered():
    module = sys.modules[__name__]
    for op in _braid.registered_ops():
        name = _snake(op[0])
        if not hasattr(module, name) and name.isidentifier():
            setattr(module, name, _make(*op[:9]))


_add_registered()
