"""Rules of ATen's ops on images and lines of channels: convolutions, pooling, padding, other sizes (_aten.py)."""

import builtins

import numpy as np

from braid import dtypes, ops
from braid.graph import Tensor
from braid.io._aten import rule


def _pair(value, places=2):
    value = [value] if isinstance(value, int) else list(value)
    return value * places if len(value) == 1 else value


def _sizes(value, along, line, places=2):
    value = [value] if isinstance(value, int) else list(value)
    return [along, value[0]] if line else _pair(value, places)


def _explicit(before, after):
    """explicit_paddings of values whose channels come first."""
    return [0, 0, 0, 0, *(each for both in zip(before, after) for each in both)]


def _channels_first(places):
    return "NCDHW" if places == 3 else "NCHW"


def _filter(weight):
    """[out, in, kernel...] as TensorFlow's [kernel..., in, out]."""
    rank = len(weight.shape)
    return ops.transpose(weight, [*range(2, rank), 1, 0])


def _with_bias(y, bias):
    """A bias of each channel."""
    if bias is None:
        return y
    if len(y.shape) == 4:
        return ops.call("BiasAdd", [y, bias], {"data_format": "NCHW"})
    return y + ops.reshape(bias, [-1] + [1] * (len(y.shape) - 2))


@rule("conv_transpose2d.input", "conv_transpose1d.default", "conv_transpose3d.input")
def _transposed(c, x, weight, bias=None, stride=1, padding=0, more=0, groups=1, dilation=1):
    """The gradient of a convolution by its input."""
    line = len(x.shape) == 3
    if line:
        x, weight = ops.expand_dims(x, 2), ops.expand_dims(weight, 2)
    axes = len(x.shape) - 2
    stride, dilation = _sizes(stride, 1, line, axes), _sizes(dilation, 1, line, axes)
    padding, more = _sizes(padding, 0, line, axes), _sizes(more, 0, line, axes)
    places = [(c.dim(x, 2 + i) - 1) * stride[i] + dilation[i] * (int(weight.shape[2 + i]) - 1) + 1 + more[i] - 2 * padding[i]
              for i in range(axes)]
    channels = int(weight.shape[1]) * groups
    shape = c.shape_value([c.dim(x, 0), channels, *places])
    y = ops.call("Conv3DBackpropInputV2" if axes == 3 else "Conv2DBackpropInput",
                 [shape if isinstance(shape, Tensor) else np.asarray(shape, np.int32), _filter(weight), x], {
                     "strides": [1, 1, *stride], "dilations": [1, 1, *dilation], "data_format": _channels_first(axes),
                     "padding": "EXPLICIT", "explicit_paddings": _explicit(padding, padding)})
    y = _with_bias(y, bias)
    return ops.squeeze(y, [2]) if line else y


@rule("conv2d.default", "conv1d.default", "conv3d.default", "convolution.default", "conv2d.padding", "conv1d.padding",
      "conv3d.padding")
def _convolution(c, x, weight, bias=None, stride=1, padding=0, dilation=1, *rest):
    transposed, more, groups = (rest[0], rest[1], rest[2]) if len(rest) > 1 else (False, 0, rest[0] if rest else 1)
    if transposed:
        return _transposed(c, x, weight, bias, stride, padding, more, groups, dilation)
    line = len(x.shape) == 3
    if line:  # an image of one row
        x, weight = ops.expand_dims(x, 2), ops.expand_dims(weight, 2)
    axes = len(x.shape) - 2
    stride, dilation = _sizes(stride, 1, line, axes), _sizes(dilation, 1, line, axes)
    attrs = {"strides": [1, 1, *stride], "dilations": [1, 1, *dilation], "data_format": _channels_first(axes)}
    if isinstance(padding, str):
        if padding == "same" and max(stride) > 1:
            raise ValueError("padding='same' with strides")
        attrs["padding"] = padding.upper()
    else:
        padding = _sizes(padding, 0, line, axes)
        attrs.update(padding="EXPLICIT", explicit_paddings=_explicit(padding, padding))
    if int(weight.shape[1]) * groups != int(x.shape[1]):
        raise ValueError(f"{x.shape[1]} channels for {groups} groups of {weight.shape[1]}")
    y = _with_bias(ops.call("Conv3D" if axes == 3 else "Conv2D", [x, _filter(weight)], attrs), bias)
    return ops.squeeze(y, [2]) if line else y


def _pool(op, x, kernel, stride, padding, ceil_mode):
    places = len(x.shape) - 2
    kernel, padding = _pair(kernel, places), _pair(padding, places)
    stride = _pair(stride, places) if stride not in (None, []) else kernel
    ends = [_further(x, i, kernel[i], stride[i], padding[i]) if ceil_mode else padding[i] for i in range(places)]
    explicit = _explicit(padding, ends)
    return ops.call(op + ("3D" if places == 3 else ""), [x], {
        "ksize": [1, 1, *kernel], "strides": [1, 1, *stride], "data_format": _channels_first(places),
        "padding": "EXPLICIT" if any(explicit) else "VALID", "explicit_paddings": explicit if any(explicit) else None,
        "_first_maximum": True if op == "MaxPool" and places == 3 else None})  # of equal ones the first has the gradient


def _further(x, axis, kernel, stride, padding):
    """Padding at the end with which a window that hangs over counts (ceil_mode)."""
    size = x.shape[2 + axis]
    if size is None:
        raise ValueError("ceil_mode over a size that follows from the batch")
    size = int(size)
    outputs = -(-(size + 2 * padding - kernel) // stride) + 1
    outputs -= (outputs - 1) * stride >= size + padding
    return max((outputs - 1) * stride + kernel - size - padding, padding)


@rule("max_pool2d.default", "max_pool3d.default")
def _max_pool(c, x, kernel, stride=None, padding=0, dilation=1, ceil_mode=False):
    if any(each != 1 for each in _pair(dilation)):
        return _dilated_maxima(c, x, kernel, stride, padding, dilation, ceil_mode)
    return _pool("MaxPool", x, kernel, stride, padding, ceil_mode)


def _dilated_maxima(c, x, kernel, stride, padding, dilation, ceil_mode):
    """Of each axis the largest of as many slices as the window has places."""
    places = len(x.shape) - 2
    kernel, padding, dilation = (_pair(each, places) for each in (kernel, padding, dilation))
    stride = _pair(stride, places) if stride not in (None, []) else kernel
    for i in range(places):
        extent = (kernel[i] - 1) * dilation[i] + 1
        after = _further(x, i, extent, stride[i], padding[i]) if ceil_mode else padding[i]
        ends = [[0, 0] for _ in x.shape]
        ends[2 + i] = [padding[i], after]
        if padding[i] or after:
            x = ops.call("PadV2", [x, np.asarray(ends, np.int32), c.constant(np.finfo(np.float32).min, x.dtype)])
        size = c.dim(x, 2 + i)
        if isinstance(size, Tensor):
            raise ValueError("pooling with dilation over a size that follows from the batch")
        count = (size - extent) // stride[i] + 1
        parts = []
        for k in range(kernel[i]):
            cut = [builtins.slice(None)] * len(x.shape)
            first = k * dilation[i]
            cut[2 + i] = builtins.slice(first, first + (count - 1) * stride[i] + 1, stride[i])
            parts.append(ops.getitem(x, tuple(cut)))
        x = parts[0]
        for part in parts[1:]:
            x = ops.maximum(x, part)
    return x


@rule("max_pool2d_with_indices.default", "max_pool3d_with_indices.default")
def _max_pool_with_indices(c, *settings):
    return [_max_pool(c, *settings), None]


@rule("max_pool1d.default")
def _max_pool_line(c, x, kernel, stride=None, padding=0, dilation=1, ceil_mode=False):
    wide = [[1, *_line(each)] for each in (kernel, stride or kernel)]
    padding, dilation = [0, *_line(padding)], [1, *_line(dilation)]
    return ops.squeeze(_max_pool(c, ops.expand_dims(x, 2), *wide, padding, dilation, ceil_mode), [2])


@rule("avg_pool2d.default", "avg_pool3d.default")
def _average_pool(c, x, kernel, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor=None):
    """Windows that hang over the end (ceil_mode) count what lies in the padding, and nothing beyond it."""
    places = len(x.shape) - 2
    kernel, pad = _pair(kernel, places), _pair(padding, places)
    stride = _pair(stride, places) if stride not in (None, []) else kernel
    after = [_further(x, i, kernel[i], stride[i], pad[i]) if ceil_mode else pad[i] for i in range(places)]
    if divisor is None and not any(pad) and not any(after):
        return _pool("AvgPool", x, kernel, stride, 0, False)
    ends = [[0, 0], [0, 0], *([a, b] for a, b in zip(pad, after))]
    y = _pool("AvgPool", ops.pad(x, ends) if any(pad) or any(after) else x, kernel, stride, 0, False)
    whole = builtins.float(np.prod(kernel))
    if divisor is not None:
        return y * (whole / divisor)
    if count_include_pad and after == pad:
        return y
    counted = ops.call("OnesLike", [x])
    if count_include_pad:
        own = [[0, 0], [0, 0], *([a, a] for a in pad)]
        counted = ops.call("PadV2", [counted, np.asarray(own, np.int32), c.constant(1.0, x.dtype)])
        ends = [[0, 0], [0, 0], *([0, b - a] for a, b in zip(pad, after))]
    return y / _pool("AvgPool", ops.pad(counted, ends), kernel, stride, 0, False)


@rule("avg_pool1d.default")
def _average_pool_line(c, x, kernel, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
    kernel, padding = [1, *_line(kernel)], [0, *_line(padding)]
    stride = kernel if stride in (None, []) else [1, *_line(stride)]
    return ops.squeeze(_average_pool(c, ops.expand_dims(x, 2), kernel, stride, padding, ceil_mode, count_include_pad), [2])


def _line(value):
    return [value] if isinstance(value, int) else builtins.list(value)


def _windows(whole, size):
    """The borders of an adaptive pool's windows over `whole` places."""
    return [(i * whole // size, -(-(i + 1) * whole // size)) for i in range(size)]


def _known_places(c, x, sizes):
    whole = [c.dim(x, i - len(sizes)) for i in range(len(sizes))]
    if any(isinstance(each, Tensor) for each in whole):
        raise ValueError("adaptive pooling of a size that follows from the batch")
    return whole


@rule("adaptive_avg_pool2d.default", "_adaptive_avg_pool2d.default", "adaptive_avg_pool1d.default",
      "adaptive_avg_pool3d.default", "_adaptive_avg_pool3d.default")
def _adaptive_pool(c, x, sizes):
    places = len(sizes)
    if all(each == 1 for each in sizes):
        return ops.reduce_mean(x, list(range(len(x.shape) - places, len(x.shape))), keepdims=True)
    whole = _known_places(c, x, sizes)
    if places > 1 and len(x.shape) == places + 2 and not any(w % s for w, s in zip(whole, sizes)):
        kernel = [w // s for w, s in zip(whole, sizes)]
        return _pool("AvgPool", x, kernel, kernel, 0, False)
    return _by_windows(x, whole, sizes, lambda part, axis: ops.reduce_mean(part, [axis], keepdims=True))


@rule("adaptive_max_pool2d.default", "adaptive_max_pool1d.default", "adaptive_max_pool3d.default")
def _adaptive_max_pool(c, x, sizes):
    if all(each == 1 for each in sizes):
        return [ops.reduce_max(x, list(range(-len(sizes), 0)), keepdims=True), None]
    whole = _known_places(c, x, sizes)
    return [_by_windows(x, whole, sizes, lambda part, axis: ops.reduce_max(part, [axis], keepdims=True)), None]


def _by_windows(x, whole, sizes, reduced):
    """A mean or maximum of each window, axis by axis: windows are products of intervals."""
    rank = len(x.shape)
    for i, (places, size) in enumerate(zip(whole, sizes)):
        axis = rank - len(sizes) + i
        if places != size:
            parts = [reduced(ops.getitem(x, tuple([builtins.slice(None)] * axis + [builtins.slice(*each)])), axis)
                     for each in _windows(places, size)]
            x = ops.concat(parts, axis) if len(parts) > 1 else parts[0]
    return x


# ------------------------------------------------------------------------------------------------------ padding and sizes
@rule("reflection_pad1d.default", "reflection_pad2d.default", "replication_pad1d.default", "replication_pad2d.default")
def _pad_by_content(c, x, pad):
    return pad_by_content(x, pad, "reflect" if "reflection" in str(c.node.target) else "replicate")


def cropped(x, pad):
    """Without what negative padding takes away, and the padding that is left."""
    for i in range(len(pad) // 2):
        before, after = (builtins.max(0, -each) for each in pad[2 * i:2 * i + 2])
        if before or after:
            cut = [builtins.slice(None)] * (len(x.shape) - 1 - i)
            x = ops.getitem(x, tuple([*cut, builtins.slice(before, -after if after else None)]))
    return x, [builtins.max(0, each) for each in pad]


def pad_by_content(x, pad, mode):
    """Axes from the last one on, two numbers each, filled from what is at the border."""
    x, pad = cropped(x, pad)
    rank = len(x.shape)
    if mode == "reflect":
        ends = [[0, 0] for _ in x.shape]
        for i in range(len(pad) // 2):
            ends[-1 - i] = [pad[2 * i], pad[2 * i + 1]]
        return ops.call("MirrorPad", [x, np.asarray(ends, np.int32)], {"mode": "REFLECT"})
    for i in range(len(pad) // 2):
        axis = rank - 1 - i
        before, after = pad[2 * i], pad[2 * i + 1]

        def part(start, end):
            return ops.getitem(x, tuple([slice(None)] * axis + [slice(start, end)]))

        if mode == "replicate":
            parts = [part(0, 1)] * before + [x] + [part(-1, None)] * after
        elif mode == "circular":
            parts = ([part(-before, None)] if before else []) + [x] + ([part(0, after)] if after else [])
        else:
            raise ValueError(f"padding '{mode}'")
        x = ops.concat(parts, axis) if len(parts) > 1 else x
    return x


def _resized(c, x, op, size, scales, attrs):
    line = len(x.shape) == 3
    x = ops.expand_dims(x, 2) if line else x
    if size is None:
        known = [x.shape[2 + i] for i in (0, 1)]
        if any(each is None for each in known):
            raise ValueError("other sizes by a factor need known sizes")
        scales = [1.0, *scales] if line else scales
        size = [int(int(each) * factor) for each, factor in zip(known, scales)]
    else:
        size = [1, *size] if line else size
    shape = c.shape_value(builtins.list(size))
    y = ops.call(op, [ops.transpose(x, [0, 2, 3, 1]), shape if isinstance(shape, Tensor) else np.asarray(shape, np.int32)], attrs)
    y = ops.transpose(y if y.dtype == x.dtype else ops.cast(y, x.dtype), [0, 3, 1, 2])
    return ops.squeeze(y, [2]) if line else y


@rule("upsample_bilinear2d.vec", "upsample_linear1d.vec")
def _bilinear(c, x, size, align_corners, scales=None):
    return _resized(c, x, "ResizeBilinear", size, scales, {"align_corners": align_corners, "half_pixel_centers": not align_corners})


@rule("upsample_nearest2d.vec", "upsample_nearest1d.vec", "_upsample_nearest_exact2d.vec", "_upsample_nearest_exact1d.vec")
def _nearest(c, x, size, scales=None):
    exact = "exact" in str(c.node.target)
    return _resized(c, x, "ResizeNearestNeighbor", size, scales, {"align_corners": False, "half_pixel_centers": exact})
