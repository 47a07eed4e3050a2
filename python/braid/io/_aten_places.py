"""Rules of ATen's ops that write into places of a value, or count them: x[a:b] = y, index_put, bucketize (_aten.py)."""

import builtins


from braid import dtypes, ops
from braid.graph import Tensor
from braid.io._aten import rule


def _like(c, x, value):
    """The value with the type and shape of x, which it broadcasts to."""
    value = c.as_type(value, x.dtype)
    return value if value.shape == x.shape and None not in x.shape else value + ops.call("ZerosLike", [x])


@rule("copy.default")
def _copy(c, x, source, *settings):
    return _like(c, x, source)


def _part(x, axis, start, end):
    return ops.getitem(x, tuple([builtins.slice(None)] * axis + [builtins.slice(start, end)]))


def _put(c, x, source, axis, start, end):
    """x with source in the places from start to end of an axis of known size."""
    ends = [_part(x, axis, 0, start)] if start else []
    ends += [source] + ([_part(x, axis, end, None)] if end < c.dim(x, axis) else [])
    return ops.concat(ends, axis) if len(ends) > 1 else source


def _known(c, x, axis):
    size = c.dim(x, axis)
    if isinstance(size, Tensor):
        raise ValueError("a part of a dimension that follows from the batch is written: torch.where keeps shapes")
    return size


@rule("slice_scatter.default")
def _slice_scatter(c, x, source, dim=0, start=None, end=None, step=1):
    axis = dim % len(x.shape)
    source = c.as_type(source, x.dtype)
    if start in (None, 0) and (end is None or not isinstance(end, Tensor) and end >= 2**62):
        if step == 1:
            return source
    size = _known(c, x, axis)
    start, end, _ = builtins.slice(start, end).indices(size)
    if step == 1:
        return _put(c, x, source, axis, start, builtins.max(start, end))
    parts = [_part(x, axis, i, i + 1) for i in builtins.range(size)]
    for k, i in enumerate(builtins.range(start, end, step)):
        parts[i] = _part(source, axis, k, k + 1)
    return ops.concat(parts, axis)


@rule("select_scatter.default")
def _select_scatter(c, x, source, dim, index):
    axis = dim % len(x.shape)
    index %= _known(c, x, axis)
    return _put(c, x, ops.expand_dims(c.as_type(source, x.dtype), axis), axis, index, index + 1)


@rule("index_put.default")
def _index_put(c, x, indices, values, accumulate=False):
    """Of indices that name a place twice without accumulate, of which PyTorch leaves open which counts, one does."""
    used = [each for each in indices if each is not None]
    if any(each.dtype == dtypes.bool_ for each in used):
        is_number = not isinstance(values, Tensor) or tuple(values.shape) in ((), (1,))
        if len(indices) == 1 and not accumulate and is_number:
            mask = indices[0]
            for _ in builtins.range(len(x.shape) - len(mask.shape)):
                mask = ops.expand_dims(mask, -1)
            return ops.where(mask, _like(c, x, values), x)
        raise ValueError("a mask as an index: the size follows from data; torch.where keeps shapes")
    if len(used) != len(indices):
        return _put_behind(c, x, indices, values, accumulate)
    whole = used[0]
    for each in used[1:]:
        whole = whole + each
    places = []
    for axis, each in enumerate(used):
        each = ops.cast(each, dtypes.int64) + ops.cast(whole, dtypes.int64) * 0
        size = ops.cast(ops.shape(x)[axis], dtypes.int64)
        places.append(ops.where(each < 0, each + size, each))
    places = ops.stack(places, -1)
    rows = ops.call("GatherNd", [x, places])
    values = _like(c, rows, values)
    return ops.call("TensorScatterAdd" if accumulate else "TensorScatterUpdate", [x, places, values])


def _put_behind(c, x, indices, values, accumulate):
    """Of indices behind whole dimensions, as x[:, :, i, j] = y: with these dimensions last."""
    whole = builtins.next(i for i, each in enumerate(indices) if each is not None)
    if any(each is None for each in indices[whole:]):
        raise ValueError("indices that leave out a dimension between others")
    rank, used = len(x.shape), len(indices) - whole
    order = [*builtins.range(whole, whole + used), *builtins.range(whole), *builtins.range(whole + used, rank)]
    back = [order.index(each) for each in builtins.range(rank)]
    if isinstance(values, Tensor) and len(values.shape) > 0:
        places = builtins.max(len(each.shape) for each in indices[whole:])
        if len(values.shape) != rank - used + places:
            raise ValueError("values that are repeated behind whole dimensions")
        of_places = [*builtins.range(whole, whole + places)]
        values = ops.transpose(values, [*of_places, *builtins.range(whole), *builtins.range(whole + places, len(values.shape))])
    put = _index_put(c, ops.transpose(x, order), builtins.list(indices[whole:]), values, accumulate)
    return ops.transpose(put, back)


@rule("bucketize.Tensor", "searchsorted.Tensor")
def _buckets(c, first, second, *, out_int32=False, right=False, side=None, sorter=None):
    """How many borders are below each value; of rows of borders those of its row."""
    x, borders = (first, second) if "bucketize" in str(c.node.target) else (second, first)
    if sorter is not None:
        raise ValueError("sorter")
    right = right or side == "right"
    borders = c.as_type(borders, x.dtype)
    borders = borders if len(borders.shape) == 1 else ops.expand_dims(borders, -2)
    value = ops.expand_dims(x, -1)
    below = borders <= value if right else borders < value
    return ops.reduce_sum(ops.cast(below, c.out_dtype()), -1)


@rule("_trilinear.default")
def _trilinear(c, a, b, d, expand_a, expand_b, expand_d, sums, unroll=1):
    product = None
    for value, expand in ((a, expand_a), (b, expand_b), (d, expand_d)):
        for axis in builtins.sorted(expand):
            value = ops.expand_dims(value, axis)
        product = value if product is None else product * value
    return ops.reduce_sum(product, [int(each) for each in sums]) if len(sums) else product


@rule("_native_batch_norm_legit.no_stats")
def _batch_norm_of_batch(c, x, weight, bias, training, momentum, epsilon):
    axes = [i for i in builtins.range(len(x.shape)) if i != 1]
    mean = ops.reduce_mean(x, axes, keepdims=True)
    spread = ops.reduce_mean(ops.square(x - mean), axes, keepdims=True)
    y = (x - mean) * ops.rsqrt(spread + float(epsilon))
    by_channel = [int(x.shape[1])] + [1] * (len(x.shape) - 2)
    y = y if weight is None else y * ops.reshape(weight, by_channel)
    return [y if bias is None else y + ops.reshape(bias, by_channel), None, None]
