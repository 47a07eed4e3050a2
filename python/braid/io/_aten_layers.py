"""Rules of ATen's layers: activations, normalisation, convolutions, tables, attention, losses (_aten.py)."""

import math

import numpy as np
import torch

from braid import dtypes, ops
from braid.graph import Tensor
from braid.io._aten import rule


# ----------------------------------------------------------------------------------------------------------- activations
@rule("gelu.default")
def _gelu(c, x, approximate="none"):
    if approximate == "tanh":
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (ops.tanh(inner) + 1.0)
    return x * 0.5 * (ops.erf(x * math.sqrt(0.5)) + 1.0)


@rule("silu.default")
def _silu(c, x):
    return x * ops.sigmoid(x)


@rule("mish.default")
def _mish(c, x):
    return x * ops.tanh(ops.softplus(x))


@rule("elu.default")
def _elu(c, x, alpha=1.0, scale=1.0, input_scale=1.0):
    if input_scale != 1:
        raise ValueError("input_scale of elu")
    y = ops.elu(x) if alpha == 1 else ops.where(x > 0.0, x, ops.expm1(ops.minimum(x, 0.0)) * float(alpha))
    return y if scale == 1 else y * float(scale)


@rule("leaky_relu.default")
def _leaky(c, x, slope=0.01):
    return ops.call("LeakyRelu", [x], {"alpha": float(slope)})


@rule("prelu.default", "_prelu_kernel.default")
def _prelu(c, x, weight):
    if len(x.shape) > 2 and int(np.prod(weight.shape)) > 1:
        weight = ops.reshape(weight, [-1] + [1] * (len(x.shape) - 2))
    return ops.relu(x) - weight * ops.relu(-x)


@rule("softplus.default")
def _softplus(c, x, beta=1.0, threshold=20.0):
    y = ops.softplus(x) if beta == 1 else ops.softplus(x * float(beta)) * (1.0 / beta)
    return y if threshold >= 20 else ops.where(x * float(beta) > float(threshold), x, y)  # beyond 20 they are one


@rule("log_sigmoid.default")
def _log_sigmoid(c, x):
    return -ops.softplus(-x)


@rule("hardsigmoid.default")
def _hard_sigmoid(c, x):
    return ops.relu6(x + 3.0) * (1 / 6)


@rule("hardswish.default")
def _hard_swish(c, x):
    return x * ops.relu6(x + 3.0) * (1 / 6)


@rule("softmax.int", "_softmax.default", "log_softmax.int", "_log_softmax.default")
def _softmax(c, x, dim, *_, **__):
    op = "LogSoftmax" if "log" in str(c.node.target) else "Softmax"
    last = len(x.shape) - 1
    if dim % len(x.shape) == last:
        return ops.call(op, [x])
    order = list(range(last + 1))
    order[dim], order[last] = order[last], order[dim]
    return ops.transpose(ops.call(op, [ops.transpose(x, order)]), order)


@rule("dropout.default", "feature_dropout.default")
def _dropout(c, x, rate, train):
    return ops.dropout(x, rate) if c.training and train else x


@rule("native_dropout.default")
def _native_dropout(c, x, rate, train):
    return [_dropout(c, x, rate, train is not False), None]


# --------------------------------------------------------------------------------------------------------- normalisation
@rule("layer_norm.default", "native_layer_norm.default")
def _layer_norm(c, x, shape, weight=None, bias=None, epsilon=1e-5, *_):
    axes = list(range(len(x.shape) - len(shape), len(x.shape)))
    mean = ops.reduce_mean(x, axes, keepdims=True)
    centred = x - mean
    deviation = ops.rsqrt(ops.reduce_mean(centred * centred, axes, keepdims=True) + float(epsilon))
    y = centred * deviation
    y = y if weight is None else y * weight
    y = y if bias is None else y + bias
    return [y, mean, deviation] if "native" in str(c.node.target) else y


@rule("rms_norm.default", "_fused_rms_norm.default")
def _rms_norm(c, x, shape, weight=None, epsilon=None):
    axes = list(range(len(x.shape) - len(shape), len(x.shape)))
    scale = ops.rsqrt(ops.reduce_mean(x * x, axes, keepdims=True) + float(1.1920929e-07 if epsilon is None else epsilon))
    y = x * scale if weight is None else x * scale * weight
    return [y, scale] if "fused" in str(c.node.target) else y


@rule("group_norm.default")
def _group_norm(c, x, groups, weight=None, bias=None, epsilon=1e-5, *_):
    channels, places = int(x.shape[1]), [c.dim(x, i) for i in range(2, len(x.shape))]
    parts = c.reshape(x, [c.dim(x, 0), groups, -1])
    mean = ops.reduce_mean(parts, [2], keepdims=True)
    centred = parts - mean
    y = centred * ops.rsqrt(ops.reduce_mean(centred * centred, [2], keepdims=True) + float(epsilon))
    y = c.reshape(y, [c.dim(x, 0), channels, *places])
    by_channel = [channels] + [1] * len(places)
    y = y if weight is None else y * ops.reshape(weight, by_channel)
    return y if bias is None else y + ops.reshape(bias, by_channel)


@rule("instance_norm.default")
def _instance_norm(c, x, weight, bias, mean, variance, of_input, momentum, epsilon, *_):
    if not of_input or mean is not None:
        raise ValueError("running statistics of instances: track_running_stats=False")
    return _group_norm(c, x, int(x.shape[1]), weight, bias, epsilon)


@rule("native_group_norm.default")
def _native_group_norm(c, x, weight, bias, rows, channels, places, groups, epsilon):
    return [_group_norm(c, x, groups, weight, bias, epsilon), None, None]


@rule("_native_batch_norm_legit_functional.default")
def _batch_norm(c, x, weight, bias, mean, variance, training, momentum, epsilon):
    """y, two values of no use here, the new running mean and variance."""
    if not (training and c.training):
        return [_normalised(x, weight, bias, mean, variance, epsilon), None, None, mean, variance]
    channels = int(x.shape[1])
    image = c.reshape(x, [c.dim(x, 0), channels, 1, -1]) if len(x.shape) != 4 else x
    weight = weight if weight is not None else c.constant(np.ones(channels), dtypes.float32)
    bias = bias if bias is not None else c.constant(np.zeros(channels), dtypes.float32)
    nothing = c.constant(np.zeros(0), dtypes.float32)
    y, found, spread = ops.call("FusedBatchNormV3", [image, weight, bias, nothing, nothing], {
        "is_training": True, "epsilon": float(epsilon), "data_format": "NCHW", "exponential_avg_factor": 1.0})[:3]
    y = y if len(x.shape) == 4 else c.reshape(y, [c.dim(x, i) for i in range(len(x.shape))])
    return [y, None, None, mean + (found - mean) * float(momentum), variance + (spread - variance) * float(momentum)]


@rule("_native_batch_norm_legit.default", "_native_batch_norm_legit_no_training.default")
def _batch_norm_of_statistics(c, x, weight, bias, mean, variance, *settings):
    return [_normalised(x, weight, bias, mean, variance, settings[-1]), None, None]


def _normalised(x, weight, bias, mean, variance, epsilon):
    by_channel = [int(x.shape[1])] + [1] * (len(x.shape) - 2)
    scale = ops.rsqrt(variance + float(epsilon))
    scale = scale if weight is None else scale * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    return x * ops.reshape(scale, by_channel) + ops.reshape(shift, by_channel)


# ---------------------------------------------------------------------------------------------------------------- tables
@rule("embedding.default")
def _embedding(c, weight, ids, padding=-1, scale_by_frequency=False, sparse=False):
    rows = c.rows(weight, ids, sparse)
    if scale_by_frequency:
        rows = _by_frequency(c, rows, ids, int(weight.shape[0]))
    return rows if padding is None or padding < 0 else _without_gradient(rows, ids, padding)


def _by_frequency(c, rows, ids, size):
    """The same rows, with gradients divided by how often the batch names the row."""
    flat = ops.reshape(ids, [-1])
    counts = ops.call("UnsortedSegmentSum", [ops.call("OnesLike", [ops.cast(flat, rows.dtype)]), flat, np.int32(size)])
    shared = rows / ops.expand_dims(ops.gather(counts, ids), -1)
    return ops.call("StopGradient", [rows]) + (shared - ops.call("StopGradient", [shared]))


def _without_gradient(rows, ids, padding):
    """The row of the padding id is read and does not learn."""
    return ops.where(ops.expand_dims(ops.call("Equal", [ids, ids.graph.constant(padding, ids.dtype)]), -1),
                     ops.call("StopGradient", [rows]), rows)


def _bags_of_rows(c):
    """The ids [batch, n], where PyTorch has made a flat vector of such, and offsets 0, n, 2 n, ..."""
    flat, offsets = c.node.args[1:3]
    if getattr(flat, "target", None) is not torch.ops.aten.view.default or list(flat.args[1]) != [-1]:
        return None
    ids = c.values[flat.args[0]]
    if getattr(offsets, "target", None) is not torch.ops.aten.arange.start_step or len(ids.shape) != 2:
        return None
    return ids if tuple(offsets.args[::2]) == (0, ids.shape[1]) else None


@rule("embedding_bag.padding_idx", "embedding_bag.default", "_embedding_bag.default",
      "_embedding_bag_forward_only.default")
def _embedding_bag(c, weight, ids, offsets, scale_by_frequency=False, mode=0, sparse=False, weights=None,
                   include_last=False, padding=None):
    """Bags of rows: which bag an id is in follows from the offsets, as sorted numbers. A bag without ids is zeros."""
    if scale_by_frequency:
        raise ValueError("scale_grad_by_freq of a bag: Embedding(scale_grad_by_freq=True), and the sum of its rows")
    of_rows = _bags_of_rows(c)
    if of_rows is not None and (padding is None or padding < 0):
        rows = c.rows(weight, of_rows, sparse)
        if weights is not None:
            rows = rows * ops.reshape(weights, [-1, int(of_rows.shape[1]), 1])
        return [(ops.reduce_sum, ops.reduce_mean, ops.reduce_max)[mode](rows, 1), None, None, None]
    if include_last:
        offsets = offsets[:-1]
    rows, count = c.rows(weight, ids, sparse), c.dim(ids, 0)
    bags = c.dim(offsets, 0)
    places = ops.expand_dims(ops.cast(ops.range(count), offsets.dtype), 0)
    bag = ops.squeeze(ops.call("UpperBound", [ops.expand_dims(offsets, 0), places], {"out_type": dtypes.int32}), [0]) - 1
    bags = bags if isinstance(bags, Tensor) else np.int32(bags)
    rows = rows if weights is None else rows * ops.expand_dims(weights, 1)
    counted = ops.call("OnesLike", [ops.cast(ids, dtypes.float32)])
    if padding is not None and padding >= 0:
        counted = ops.cast(ops.call("NotEqual", [ids, c.constant(padding, ids.dtype)]), dtypes.float32)
        rows = rows * ops.expand_dims(counted, 1)
    sizes = ops.call("UnsortedSegmentSum", [counted, bag, bags])
    if mode == 2:
        bag = bag if padding is None or padding < 0 else ops.where(counted > 0.0, bag, -1)
        largest = ops.call("UnsortedSegmentMax", [c.rows(weight, ids, sparse), bag, bags])
        return [ops.where(ops.expand_dims(sizes > 0.0, 1), largest, 0.0), None, None, None]
    total = ops.call("UnsortedSegmentSum", [rows, bag, bags])
    if mode == 1:
        total = total / ops.expand_dims(ops.maximum(sizes, 1.0), 1)
    return [total, None, None, None]


def _repeated_heads(c, x, times):
    sizes = [c.dim(x, i) for i in range(len(x.shape))]
    tiled = ops.tile(ops.expand_dims(x, -3), [1] * (len(sizes) - 2) + [times, 1, 1])
    return c.reshape(tiled, [*sizes[:-3], int(sizes[-3]) * times, *sizes[-2:]])


@rule("scaled_dot_product_attention.default")
def _attention(c, query, key, value, mask=None, rate=0.0, causal=False, scale=None, enable_gqa=False):
    if enable_gqa and int(query.shape[-3]) != int(key.shape[-3]):
        times = int(query.shape[-3]) // int(key.shape[-3])
        key, value = (_repeated_heads(c, each, times) for each in (key, value))
    scale = 1 / math.sqrt(int(query.shape[-1])) if scale is None else scale
    scores = ops.matmul(query, key, transpose_b=True) * float(scale)
    if causal:
        steps, others = c.dim(query, -2), c.dim(key, -2)
        mask = ops.expand_dims(ops.range(others), 0) <= ops.expand_dims(ops.range(steps), 1)
    alive = None  # rows of the mask that leave nothing attend to nothing, as in PyTorch: zeros, no mean and no NaN
    if mask is not None and mask.dtype == dtypes.bool_:
        alive = None if causal else ops.call("Any", [mask, np.int32(-1)], {"keep_dims": True})
        scores = ops.where(mask, scores, -1e30)
    elif mask is not None:
        alive = ops.reduce_max(mask, [-1], keepdims=True) > -np.inf
        scores = scores + ops.where(alive, mask, 0.0)
    attended = ops.matmul(_dropout(c, ops.softmax(scores), rate, True), value)
    return attended if alive is None else ops.where(alive, attended, 0.0)


# ---------------------------------------------------------------------------------------------------------------- losses
def _reduced(values, reduction):
    return {0: lambda v: v, 1: ops.reduce_mean, 2: ops.reduce_sum}[reduction](values)


@rule("mse_loss.default", "l1_loss.default")
def _difference(c, x, y, reduction=1):
    return _reduced(abs(x - y) if "l1" in str(c.node.target) else ops.square(x - y), reduction)


@rule("smooth_l1_loss.default", "huber_loss.default")
def _huber(c, x, y, reduction=1, beta=1.0):
    away = abs(x - y)
    near = ops.minimum(away, float(beta))
    loss = near * (away - near * 0.5)
    return _reduced(loss * (1.0 / beta) if "smooth" in str(c.node.target) else loss, reduction)


@rule("binary_cross_entropy_with_logits.default")
def _binary(c, x, y, weight=None, positive=None, reduction=1):
    y = c.as_type(y, x.dtype)
    soft = ops.softplus(-abs(x)) + ops.relu(-x)  # log(1 + exp(-x))
    loss = (1.0 - y) * x + (soft if positive is None else ((positive - 1.0) * y + 1.0) * soft)
    return _reduced(loss if weight is None else loss * weight, reduction)


@rule("cross_entropy_loss.default")
def _cross_entropy(c, x, y, weight=None, reduction=1, ignore=-100, smoothing=0.0):
    x = _classes_last(x)
    logs = ops.call("LogSoftmax", [x])
    if y.dtype.is_floating:
        y = _classes_last(y)
        weighted = logs if weight is None else logs * weight
        loss = -ops.reduce_sum(weighted * y, -1)
        loss = loss if not smoothing else loss * (1.0 - smoothing) - ops.reduce_mean(weighted, -1) * smoothing
        return ops.reduce_sum(loss) / _count_like(loss) if reduction == 1 else _reduced(loss, reduction)
    return _of_classes(logs, y, reduction, ignore, weight, float(smoothing))


@rule("nll_loss.default", "nll_loss_forward.default", "nll_loss_nd.default", "nll_loss2d_forward.default")
def _nll(c, x, y, weight=None, reduction=1, ignore=-100):
    loss = _of_classes(_classes_last(x), y, reduction, ignore, weight, 0.0)
    return [loss, None] if "forward" in str(c.node.target) else loss


def _classes_last(x):
    """[batch, classes, ...] with the classes last."""
    rank = len(x.shape)
    return x if rank <= 2 else ops.transpose(x, [0, *range(2, rank), 1])


def _count_like(x):
    return ops.reduce_sum(ops.call("OnesLike", [x]))


def _of_classes(logs, y, reduction, ignore, weight, smoothing):
    counts = ops.cast(ops.call("NotEqual", [y, y.graph.constant(ignore, y.dtype)]), dtypes.float32)
    places = ops.cast(ops.range(ops.shape(logs)[len(logs.shape) - 1]), y.dtype)
    hot = ops.cast(ops.call("Equal", [ops.expand_dims(y, -1), places]), logs.dtype)  # zeros where the class is ignored
    weighted = logs if weight is None else logs * weight
    loss = -ops.reduce_sum(weighted * hot, -1) * counts
    if smoothing:
        loss = loss * (1.0 - smoothing) - ops.reduce_mean(weighted, -1) * counts * smoothing  # classes may be the batch's rows
    if reduction != 1:
        return _reduced(loss, reduction)
    counted = counts if weight is None else ops.reduce_sum(hot * weight, -1) * counts
    return ops.reduce_sum(loss) / ops.reduce_sum(counted)
