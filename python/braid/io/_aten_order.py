"""Rules of ATen's ops that sort, choose and accumulate along a dimension (_aten.py)."""

import builtins

import numpy as np

from braid import dtypes, ops
from braid.graph import Tensor
from braid.io._aten import rule


def _swapped(x, dim):
    """The value with that dimension last, and back."""
    order = builtins.list(builtins.range(len(x.shape)))
    order[dim], order[-1] = order[-1], order[dim]
    return (x if dim % len(order) == len(order) - 1 else ops.transpose(x, order)), order


def _back(x, order):
    return x if order == builtins.sorted(order) else ops.transpose(x, order)


def _largest(c, x, k, dim, largest):
    """Values and places of the k first in order; of equal ones the earlier is first."""
    if len(x.shape) == 0:
        return [x, c.constant(0, dtypes.int64)]
    line, order = _swapped(x, dim)
    values, places = ops.call("TopKV2", [line if largest else -line, np.int32(k)], {"sorted": True})[:2]
    return [_back(values if largest else -values, order), _back(ops.cast(places, dtypes.int64), order)]


@rule("topk.default")
def _topk(c, x, k, dim=-1, largest=True, sort=True):
    return _largest(c, x, k, dim, largest)


@rule("sort.default", "argsort.default")
def _sort(c, x, dim=-1, descending=False):
    found = _largest(c, x, _known(x, dim), dim, descending)
    return found[1] if "argsort" in str(c.node.target) else found


@rule("sort.stable", "argsort.stable")
def _stable_sort(c, x, *, stable=None, dim=-1, descending=False):
    return _sort(c, x, dim, descending)


@rule("median.dim")
def _median(c, x, dim, keepdim=False):
    """The lower one of two in the middle, with its place."""
    count = _known(x, dim)
    values, places = _largest(c, x, count, dim, False)
    cut = [builtins.slice(None)] * len(x.shape)
    middle = (count - 1) // 2
    cut[dim] = builtins.slice(middle, middle + 1)
    value, place = (ops.getitem(each, tuple(cut)) for each in (values, places))
    axis = dim % len(x.shape)
    return [value, place] if keepdim else [ops.squeeze(value, [axis]), ops.squeeze(place, [axis])]


def _known(x, dim):
    if len(x.shape) and x.shape[dim] is None:
        raise ValueError("sorting along a dimension whose size follows from the batch")
    return int(x.shape[dim]) if len(x.shape) else 1


@rule("gather.default")
def _gather(c, x, dim, index, sparse_grad=False):
    x, order = _swapped(x, dim)
    index, _ = _swapped(index, dim)
    rank = len(x.shape)
    offset, stride = ops.cast(index, dtypes.int64), c.dim(x, rank - 1)
    for axis in builtins.reversed(builtins.range(rank - 1)):
        rows = ops.reshape(ops.range(c.dim(index, axis)), [1] * axis + [-1] + [1] * (rank - 1 - axis))
        offset = offset + ops.cast(rows * stride, dtypes.int64)
        stride = c.dim(x, axis) * stride
    return _back(ops.gather(ops.reshape(x, [-1]), offset), order)


@rule("cumprod.default")
def _cumprod(c, x, dim, dtype=None):
    return ops.call("Cumprod", [c.as_type(x, c.out_dtype()), np.int32(dim)], {"exclusive": False, "reverse": False})


@rule("logcumsumexp.default")
def _logcumsumexp(c, x, dim):
    """As sums over a triangle, each from its own largest element, so that nothing underflows."""
    line, order = _swapped(x, dim)
    places = ops.range(c.dim(line, -1))
    before = ops.expand_dims(places, 0) <= ops.expand_dims(places, 1)
    rows = ops.call("SelectV2", [before, ops.expand_dims(line, -2), c.constant(-np.inf, x.dtype)])
    top = ops.call("StopGradient", [ops.reduce_max(rows, [-1], keepdims=True)])
    sums = ops.reduce_sum(ops.exp(rows - top), [-1])
    return _back(ops.call("Log", [sums]) + ops.squeeze(top, [len(x.shape)]), order)


@rule("roll.default")
def _roll(c, x, shifts, dims=()):
    if not dims:
        sizes = [c.dim(x, i) for i in builtins.range(len(x.shape))]
        return c.reshape(_roll(c, ops.reshape(x, [-1]), shifts, [0]), sizes)
    return ops.call("Roll", [x, np.asarray(shifts, np.int32), np.asarray([each % len(x.shape) for each in dims], np.int32)])


@rule("diagonal.default")
def _diagonal(c, x, offset=0, dim1=0, dim2=1):
    rank = len(x.shape)
    first, second = dim1 % rank, dim2 % rank
    cut = [builtins.slice(None)] * rank
    if offset:
        cut[second if offset > 0 else first] = builtins.slice(abs(offset), None)
        rows, columns = (x.shape[axis] for axis in (first, second))
        if rows is None or columns is None:
            raise ValueError("a diagonal beside the main one needs known sizes")
        x = ops.getitem(x, tuple(cut))
    rows, columns = (x.shape[axis] for axis in (first, second))
    if rows != columns and rows is not None and columns is not None:
        cut = [builtins.slice(None)] * rank
        cut[first] = cut[second] = builtins.slice(0, builtins.min(int(rows), int(columns)))
        x = ops.getitem(x, tuple(cut))
    labels = [chr(ord("a") + i) for i in builtins.range(rank)]
    labels[second] = labels[first]
    kept = [each for i, each in enumerate(labels) if i not in (first, second)]
    return ops.call("Einsum", [x], {"equation": f"{''.join(labels)}->{''.join(kept)}{labels[first]}"})


@rule("fmod.Scalar", "fmod.Tensor")
def _fmod(c, a, b):
    kind = c.out_dtype()
    a, b = c.as_type(a, kind), c.as_type(b, kind)
    return ops.call("TruncateMod" if kind.is_integer else "Mod", [a, b])


@rule("index_add.default")
def _index_add(c, x, dim, index, source, *, alpha=1):
    moved, order = _moved_ahead(source, dim)
    count = c.dim(x, dim)
    sums = ops.call("UnsortedSegmentSum", [moved, index, np.int32(count) if not isinstance(count, Tensor) else count])
    back = builtins.list(np.argsort(order))
    sums = sums if order == back == builtins.sorted(order) else ops.transpose(sums, back)
    return x + (sums if alpha == 1 else sums * alpha)


def _moved_ahead(x, dim):
    order = builtins.list(builtins.range(len(x.shape)))
    order.insert(0, order.pop(dim))
    return (x if order == builtins.sorted(order) else ops.transpose(x, order)), order


def _flat_places(c, x, dim, index):
    """x with `dim` last, the index's places in the flat value, and how many elements it has."""
    swapped, order = _swapped(x, dim)
    index, _ = _swapped(index, dim)
    rank = len(x.shape)
    flat, stride = ops.cast(index, dtypes.int64), c.dim(swapped, rank - 1)
    for axis in builtins.reversed(builtins.range(rank - 1)):
        rows = ops.reshape(ops.range(c.dim(index, axis)), [1] * axis + [-1] + [1] * (rank - 1 - axis))
        flat = flat + ops.cast(rows * stride, dtypes.int64)
        stride = c.dim(swapped, axis) * stride
    whole = stride if isinstance(stride, Tensor) else np.int32(stride)
    return swapped, order, ops.reshape(flat, [-1]), whole


def _scattered(c, op, x, dim, index, source):
    """What a segment op makes of the source's elements by their places, in the shape of x."""
    swapped, order, flat, whole = _flat_places(c, x, dim, index)
    part, _ = _swapped(source, dim)
    line, _ = _swapped(index, dim)
    if any(a != b for a, b in zip(line.shape, part.shape)):
        raise ValueError("a source that is larger than its indices")
    made = ops.call(op, [ops.reshape(part, [-1]), flat, whole])
    return _back(c.reshape(made, [c.dim(swapped, i) for i in builtins.range(len(x.shape))]), order)


@rule("scatter_add.default")
def _scatter_add(c, x, dim, index, source):
    """Sums by place in the flat value."""
    return x + _scattered(c, "UnsortedSegmentSum", x, dim, index, source)


@rule("scatter_reduce.two")
def _scatter_reduce(c, x, dim, index, source, reduce, *, include_self=True):
    if reduce not in ("sum", "mean", "amax", "amin"):
        raise ValueError(f"scatter_reduce by '{reduce}': sum, mean, amax and amin are taken")
    ones = ops.call("OnesLike", [c.as_type(source, dtypes.float32)])
    counts = _scattered(c, "UnsortedSegmentSum", x, dim, index, ones)
    named = counts > 0.0
    if reduce in ("sum", "mean"):
        own = x if include_self else ops.call("SelectV2", [named, ops.call("ZerosLike", [x]), x])
        total = own + _scattered(c, "UnsortedSegmentSum", x, dim, index, source)
        if reduce == "sum":
            return total
        return total / c.as_type(ops.maximum(counts + 1.0 if include_self else counts, 1.0), x.dtype)
    found = _scattered(c, "UnsortedSegmentMax" if reduce == "amax" else "UnsortedSegmentMin", x, dim, index, source)
    if include_self:
        found = ops.call("Maximum" if reduce == "amax" else "Minimum", [found, x])
    return ops.call("SelectV2", [named, found, x])


@rule("scatter.value", "scatter.src")
def _scatter(c, x, dim, index, source):
    """Indices that name a place twice, of which PyTorch leaves open which counts, are summed."""
    like_index = ops.call("OnesLike", [c.as_type(index, dtypes.float32)])
    zeros = c.as_type(ops.call("ZerosLike", [x]), dtypes.float32)
    named = _scatter_add(c, zeros, dim, index, like_index) > 0.0
    if not isinstance(source, Tensor):
        return ops.call("SelectV2", [named, c.constant(source, x.dtype), x])
    sums = _scatter_add(c, ops.call("ZerosLike", [x]), dim, index, c.as_type(source, x.dtype))
    return ops.call("SelectV2", [named, sums, x])
