"""Functions of tf.* that are made of several ops."""

import string as _string

from braid import ops as _ops
from braid.attrs import native_shape as _native_shape
from braid.graph import default_graph as _default_graph


def tensordot(a, b, axes, name=None):
    """The product over `axes`: a number of last axes of a and first ones of b, or a list for each."""
    rank_a, rank_b = len(a.shape), len(b.shape)
    if isinstance(axes, int):
        of_a, of_b = list(range(rank_a - axes, rank_a)), list(range(axes))
    else:
        of_a, of_b = ([each % rank for each in ([given] if isinstance(given, int) else given)]
                      for given, rank in zip(axes, (rank_a, rank_b)))
    left, right = list(_string.ascii_lowercase[:rank_a]), list(_string.ascii_uppercase[:rank_b])
    for i, j in zip(of_a, of_b):
        right[j] = left[i]
    rest = [c for i, c in enumerate(left) if i not in of_a] + [c for j, c in enumerate(right) if j not in of_b]
    return _ops.call("Einsum", [a, b], {"equation": f"{''.join(left)},{''.join(right)}->{''.join(rest)}", "N": 2}, name)


def reduce_logsumexp(input_tensor, axis=None, keepdims=None, name=None, reduction_indices=None, keep_dims=None):
    """log(sum(exp(x))), from the largest."""
    axis, keep = reduction_indices if axis is None else axis, bool(keepdims or keep_dims)
    largest = _ops.call("StopGradient", [_ops.reduce_max(input_tensor, axis, keepdims=True)])
    found = _ops.log(_ops.reduce_sum(_ops.exp(input_tensor - largest), axis, keepdims=True)) + largest
    return found if keep else _ops.reduce_sum(found, axis)


def norm(tensor, ord="euclidean", axis=None, keepdims=None, name=None, keep_dims=None):
    """Euclidean, or ord 1, or the largest absolute value (ord infinity)."""
    keep = bool(keepdims or keep_dims)
    if ord in ("euclidean", "fro", 2):
        return _ops.sqrt(_ops.reduce_sum(tensor * tensor, axis, keepdims=keep))
    if ord == 1:
        return _ops.reduce_sum(_ops.abs(tensor), axis, keepdims=keep)
    if ord == float("inf"):
        return _ops.reduce_max(_ops.abs(tensor), axis, keepdims=keep)
    raise ValueError(f"tf.norm: ord={ord!r}; 'euclidean', 1 and infinity are taken")


def placeholder_with_default(input, shape, name=None):
    """A value that a feed of its shape may replace."""
    value = _default_graph().convert(input)
    attrs = {"shape": ("shape", _native_shape(shape))}
    return _ops.call("PlaceholderWithDefault", [value], attrs, name or "PlaceholderWithDefault")
