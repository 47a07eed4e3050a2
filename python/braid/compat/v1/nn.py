"""tf.nn."""

import numpy as _np

from braid import ops as _ops
from braid.compat.v1.errors import only as _only
from braid.dtypes import float32, int64
from braid.graph import Variable as _Variable


def _simple(op):
    return lambda features, name=None: _ops.call(op, [features], name=name)


relu, relu6, elu, selu, softplus, softsign, sigmoid, tanh = (_simple(each) for each in (
    "Relu", "Relu6", "Elu", "Selu", "Softplus", "Softsign", "Sigmoid", "Tanh"))


def _along(op):
    def function(logits, axis=None, name=None, dim=None):
        axis = dim if axis is None else axis
        rank = len(logits.shape)
        if axis is None or axis % rank == rank - 1:
            return _ops.call(op, [logits], name=name)
        order = [each for each in range(rank) if each != axis % rank] + [axis % rank]
        back = [order.index(each) for each in range(rank)]
        return _ops.transpose(_ops.call(op, [_ops.transpose(logits, order)], name=name), back)

    return function


softmax, log_softmax = _along("Softmax"), _along("LogSoftmax")


def embedding_lookup(params, ids, partition_strategy="mod", name=None, validate_indices=True, max_norm=None):
    """Rows of a variable, which are then trained by rows, or of any value."""
    _only("tf.nn.embedding_lookup", {"max_norm": max_norm})
    if isinstance(params, (list, tuple)):
        if len(params) != 1:
            from braid.compat.v1.errors import UnimplementedError
            raise UnimplementedError(None, None, "embedding_lookup over several partitions")
        params = params[0]
    if isinstance(params, _Variable):
        return _ops.call("ResourceGather", [params.handle, ids], {"dtype": params.dtype}, name or "embedding_lookup")
    return _ops.gather(params, ids, 0, name)


def bias_add(value, bias, data_format="NHWC", name=None):
    return _ops.call("BiasAdd", [value, bias], {"data_format": data_format or "NHWC"}, name)


def conv2d(input, filter=None, strides=None, padding="SAME", use_cudnn_on_gpu=True, data_format="NHWC",
           dilations=(1, 1, 1, 1), name=None, filters=None):
    weights = filters if filter is None else filter
    return _ops.call("Conv2D", [input, weights], {"strides": list(strides), "padding": padding,
                                                  "data_format": data_format, "dilations": list(dilations)}, name)


def _pool(op):
    def pool(value, ksize, strides, padding, data_format="NHWC", name=None):
        return _ops.call(op, [value], {"ksize": list(ksize), "strides": list(strides), "padding": padding,
                                       "data_format": data_format}, name)

    return pool


max_pool, avg_pool = _pool("MaxPool"), _pool("AvgPool")


def leaky_relu(features, alpha=0.2, name=None):
    return _ops.call("LeakyRelu", [features], {"alpha": float(alpha)}, name)


def moments(x, axes, shift=None, name=None, keep_dims=None, keepdims=None):
    """Mean and variance over these axes."""
    mean = _ops.reduce_mean(x, axes, keepdims=True)
    variance = _ops.reduce_mean(_ops.square(x - mean), axes, keepdims=bool(keepdims or keep_dims))
    return (mean if keepdims or keep_dims else _ops.reduce_mean(x, axes)), variance


def batch_normalization(x, mean, variance, offset, scale, variance_epsilon, name=None):
    factor = _ops.rsqrt(variance + float(variance_epsilon))
    factor = factor if scale is None else factor * scale
    return x * factor + (-mean * factor if offset is None else offset - mean * factor)


def top_k(input, k=1, sorted=True, name=None):
    """(values, indices) of the largest k of the last dimension."""
    import numpy as np
    return tuple(_ops.call("TopKV2", [input, np.int32(k)], {"sorted": sorted}, name))


def sigmoid_cross_entropy_with_logits(_sentinel=None, labels=None, logits=None, name=None):
    """Of each element: max(z, 0) - z y + log(1 + exp(-|z|))."""
    return relu(logits) - logits * labels + _ops.log1p(_ops.exp(-abs(logits)))


def _last(what, logits, axis):
    if axis is not None and axis % len(logits.shape) != len(logits.shape) - 1:
        _only(what, {"axis": axis})


def softmax_cross_entropy_with_logits(_sentinel=None, labels=None, logits=None, dim=-1, name=None, axis=None):
    _last("softmax_cross_entropy_with_logits", logits, dim if axis is None else axis)
    return _ops.call("SoftmaxCrossEntropyWithLogits", [logits, labels], name=name)[0]


softmax_cross_entropy_with_logits_v2 = softmax_cross_entropy_with_logits


def sparse_softmax_cross_entropy_with_logits(_sentinel=None, labels=None, logits=None, name=None):
    return _ops.call("SparseSoftmaxCrossEntropyWithLogits", [logits, labels], name=name)[0]


def dropout(x, keep_prob=None, noise_shape=None, seed=None, name=None, rate=None):
    rate = rate if keep_prob is None else 1 - keep_prob
    if noise_shape is None:
        return _ops.dropout(x, rate, name)
    sizes = [_ops.shape(x)[i] if each is None else each for i, each in enumerate(noise_shape)]
    kept = _ops.cast(_ops.random_uniform(sizes) >= float(rate), x.dtype)
    return x * kept * (1.0 / (1.0 - rate))


def l2_loss(t, name=None):
    return _ops.call("L2Loss", [t], name=name)


def l2_normalize(x, axis=None, epsilon=1e-12, name=None, dim=None):
    square = _ops.reduce_sum(x * x, dim if axis is None else axis, keepdims=True)
    return x * _ops.rsqrt(_ops.maximum(square, epsilon))


def xw_plus_b(x, weights, biases, name=None):
    return bias_add(_ops.matmul(x, weights), biases)


def in_top_k(predictions, targets, k, name=None):
    return _ops.call("InTopKV2", [predictions, _ops.cast(targets, int64), _np.int64(k)])


def local_response_normalization(input, depth_radius=5, bias=1, alpha=1, beta=0.5, name=None):
    """Each value [rows, height, width, channels] by the squares of 2 depth_radius + 1 channels around it."""
    attrs = {"depth_radius": int(depth_radius), "bias": float(bias), "alpha": float(alpha), "beta": float(beta)}
    return _ops.call("LRN", [input], attrs, name=name)


lrn = local_response_normalization


def zero_fraction(value, name=None):
    return _ops.reduce_mean(_ops.cast(_ops.equal(value, 0), float32))


def __getattr__(name):
    raise AttributeError(f"braid.compat.v1.nn has no '{name}': docs/user/python.md lists what runs")
