"""Rules of ATen's ops that make values or move elements (_aten.py)."""

import builtins

import numpy as np

from braid import dtypes, ops
from braid.graph import Tensor
from braid.io._aten import dtype_of, rule
from braid.io._aten_images import cropped, pad_by_content

_LAST = 2**31 - 1  # torch says "to the end" with the largest int64


@rule("clone.default", "contiguous.default", "alias.default", "lift_fresh_copy.default", "dropout_.default")
def _same(c, x, *_, **__):
    return x


@rule("detach.default")
def _detach(c, x):
    return ops.call("StopGradient", [x])


@rule("_to_copy.default", "to.dtype", "to.dtype_layout", "type_as.default")
def _to(c, x, *_, **__):
    return c.as_type(x, c.out_dtype())


@rule("view.default", "reshape.default", "_unsafe_view.default")
def _view(c, x, shape):
    return c.reshape(x, shape)


@rule("flatten.using_ints")
def _flatten(c, x, start=0, end=-1):
    end %= len(x.shape)
    ahead = [c.dim(x, i) for i in builtins.range(start)]
    return c.reshape(x, ahead + [-1] + [c.dim(x, i) for i in builtins.range(end + 1, len(x.shape))])


@rule("unsqueeze.default")
def _unsqueeze(c, x, dim):
    return ops.expand_dims(x, dim)


@rule("squeeze.default", "squeeze.dim", "squeeze.dims")
def _squeeze(c, x, dims=None):
    dims = builtins.range(len(x.shape)) if dims is None else [dims] if isinstance(dims, int) else dims
    dims = [each % len(x.shape) for each in dims]
    ones = [each for each in dims if x.shape[each] == 1]
    return ops.squeeze(x, ones) if ones else x


@rule("permute.default")
def _permute(c, x, dims):
    return ops.transpose(x, [each % len(x.shape) for each in dims])


@rule("transpose.int", "t.default")
def _transpose(c, x, a=0, b=1):
    order = builtins.list(builtins.range(len(x.shape)))
    order[a], order[b] = order[b], order[a]
    return ops.transpose(x, order) if len(order) > 1 else x


@rule("expand.default", "broadcast_to.default")
def _expand(c, x, sizes, implicit=False):
    sizes = builtins.list(sizes)
    ahead = len(sizes) - len(x.shape)
    for i, size in enumerate(sizes):
        if not isinstance(size, Tensor) and size == -1:
            sizes[i] = c.dim(x, i - ahead)
    shape = c.shape_value(sizes)
    return ops.call("BroadcastTo", [x, shape if isinstance(shape, Tensor) else np.asarray(shape, np.int32)])


@rule("repeat.default")
def _repeat(c, x, times):
    ahead = len(times) - len(x.shape)
    x = x if not ahead else c.reshape(x, [1] * ahead + [c.dim(x, i) for i in builtins.range(len(x.shape))])
    shape = c.shape_value(times)
    return ops.tile(x, shape)


@rule("cat.default", "concat.default")
def _cat(c, values, dim=0):
    kind = c.out_dtype()
    values = [c.as_type(each, kind) for each in values if each.shape != (0,)]
    return ops.concat(values, dim)


@rule("stack.default")
def _stack(c, values, dim=0):
    return ops.stack([c.as_type(each, c.out_dtype()) for each in values], dim)


@rule("split.Tensor")
def _split(c, x, size, dim=0):
    whole = c.dim(x, dim)
    if isinstance(whole, Tensor):
        raise ValueError("the size of what is split follows from the batch")
    return ops.split(x, [builtins.min(size, whole - at) for at in builtins.range(0, whole, size)], dim)


@rule("chunk.default")
def _chunk(c, x, parts, dim=0):
    return _split(c, x, -(-c.dim(x, dim) // parts), dim)


@rule("split_with_sizes.default", "split.sizes")
def _split_sizes(c, x, sizes, dim=0):
    return ops.split(x, builtins.list(sizes), dim)


@rule("unbind.int")
def _unbind(c, x, dim=0):
    return ops.unstack(x, axis=dim % len(x.shape))


def _part(x, dim, item):
    dim %= len(x.shape)
    return ops.getitem(x, tuple([builtins.slice(None)] * dim + [item]))


@rule("select.int")
def _select(c, x, dim, index):
    if isinstance(index, Tensor):
        return ops.gather(x, index, dim % len(x.shape))
    if index < 0 and x.shape[dim] is None:
        last = builtins.slice(index, None if index == -1 else index + 1)
        return ops.squeeze(_part(x, dim, last), [dim % len(x.shape)])
    return _part(x, dim, index if index >= 0 else int(x.shape[dim]) + index)


@rule("slice.Tensor")
def _slice(c, x, dim=0, start=None, end=None, step=1):
    if isinstance(start, Tensor) or isinstance(end, Tensor):
        raise ValueError("the bounds follow from the batch")
    end = None if end is None or end >= _LAST else end
    start = None if not start else start
    if start is None and end is None and step == 1:
        return x
    if end is not None and x.shape[dim] is not None and end > int(x.shape[dim]):
        end = None
    return _part(x, dim, builtins.slice(start, end, step))


@rule("index_select.default")
def _index_select(c, x, dim, index):
    return ops.gather(x, index, dim % len(x.shape))


@rule("unfold.default")
def _unfold(c, x, dim, size, step):
    """Windows along a dimension; their elements are the last one."""
    rank, dim = len(x.shape), dim % len(x.shape)
    if x.shape[dim] is None:
        raise ValueError("windows along a dimension whose size follows from the batch")
    first = np.arange(0, int(x.shape[dim]) - size + 1, step)
    places = c.constant(first[:, None] + np.arange(size), dtypes.int64)
    made = ops.gather(x, places, dim)
    order = [i for i in builtins.range(rank + 1) if i != dim + 1] + [dim + 1]
    return made if dim + 1 == rank else ops.transpose(made, order)


@rule("index.Tensor")
def _index(c, x, indices):
    used = [i for i, each in enumerate(indices) if each is not None]
    if any(indices[i].dtype == dtypes.bool_ for i in used):
        raise ValueError("a mask as an index: the size follows from data; torch.where keeps shapes")
    if len(used) == 1:
        return ops.gather(x, indices[used[0]], used[0])
    first = used[0]
    if used != builtins.list(builtins.range(first, first + len(used))):
        raise ValueError("several indices whose dimensions do not follow each other")
    shape = indices[first]
    for i in used[1:]:
        shape = shape + indices[i]
    places = ops.stack([indices[i] + shape * 0 for i in used], -1)
    if first == 0:
        return ops.call("GatherNd", [x, places])
    # The indexed dimensions go ahead, and the result's dimensions of indices back to their place.
    others = [i for i in builtins.range(len(x.shape)) if i not in used]
    found = ops.call("GatherNd", [ops.transpose(x, used + others), places])
    count = len(shape.shape)
    order = builtins.list(builtins.range(count, count + first)) + builtins.list(builtins.range(count))
    return ops.transpose(found, order + builtins.list(builtins.range(count + first, len(found.shape))))


@rule("constant_pad_nd.default", "pad.default")
def _pad(c, x, pad, mode="constant", value=0.0):
    if isinstance(mode, (int, float)):
        mode, value = "constant", mode
    if mode != "constant":
        return pad_by_content(x, pad, mode)
    x, pad = cropped(x, pad)
    both_ends = [[0, 0] for _ in x.shape]
    for i in builtins.range(len(pad) // 2):
        both_ends[-1 - i] = [pad[2 * i], pad[2 * i + 1]]
    return ops.pad(x, both_ends, value or 0)


@rule("flip.default")
def _flip(c, x, dims):
    return ops.call("ReverseV2", [x, np.asarray([each % len(x.shape) for each in dims], np.int32)])


@rule("tril.default", "triu.default")
def _triangle(c, x, diagonal=0):
    """Elements on one side of a diagonal, by a mask, as the offset may be of either sign."""
    rows, columns = (ops.range(c.dim(x, axis)) for axis in (-2, -1))
    distance = ops.expand_dims(columns, 0) - ops.expand_dims(rows, 1)
    keep = distance <= diagonal if "tril" in str(c.node.target) else distance >= diagonal
    return ops.call("SelectV2", [keep, x, c.constant(0, x.dtype)])


# ----------------------------------------------------------------------------------------------------------- new values
@rule("arange.start_step", "arange.start", "arange.default")
def _arange(c, *bounds, dtype=None):
    start, end, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    kind = c.out_dtype()
    if any(isinstance(each, Tensor) for each in (start, end, step)):
        return c.as_type(ops.range(start, end, step), kind)
    return c.constant(np.arange(start, end, step), kind)


@rule("full.default", "new_full.default")
def _full(c, *given, dtype=None):
    shape, value = given[-2:]
    return ops.fill(c.shape_value(shape), c.constant(value, c.out_dtype()))


@rule("zeros.default", "ones.default", "new_zeros.default", "new_ones.default", "empty.memory_format", "new_empty.default")
def _filled(c, *given, dtype=None):
    return ops.fill(c.shape_value(given[-1]), c.constant(int("ones" in str(c.node.target)), c.out_dtype()))


@rule("zeros_like.default", "ones_like.default", "full_like.default", "empty_like.default")
def _like(c, x, value=None, dtype=None):
    value = (1 if "ones" in str(c.node.target) else 0) if value is None else value
    return ops.fill(c.shape_value([c.dim(x, i) for i in builtins.range(len(x.shape))]),
                    c.constant(value, c.out_dtype()))


@rule("scalar_tensor.default")
def _scalar(c, value, dtype=None):
    return c.as_type(value, c.out_dtype() if dtype is None else dtype_of(dtype))
