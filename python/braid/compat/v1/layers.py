"""tf.layers: functions that make variables under their names' scopes, as TensorFlow 1 calls them."""

import numpy as np

from braid import nn as _bnn, ops as _ops
from braid.compat.v1 import nn as _nn
from braid.compat.v1.errors import only
from braid.compat.v1._variables import (GraphKeys, add_to_collection, get_variable, get_variable_scope, ones_initializer,
                                        variable_scope, zeros_initializer)
from braid.graph import default_graph


def _named(name, default):
    """The scope of a layer without a name of its own: dense, dense_1, dense_2, ..."""
    if name is not None:
        return name
    used = default_graph().collections.setdefault("__layers", {})
    full = f"{get_variable_scope().name}/{default}"
    used[full] = used.get(full, -1) + 1
    return default if used[full] == 0 else f"{default}_{used[full]}"


def _ended(y, activation):
    return y if activation is None else activation(y)


def _regularized(y, activity_regularizer):
    """What a layer's activity adds to the loss is among the regularization losses."""
    if activity_regularizer is not None:
        add_to_collection(GraphKeys.REGULARIZATION_LOSSES, activity_regularizer(y))
    return y


def dense(inputs, units, activation=None, use_bias=True, kernel_initializer=None, bias_initializer=None,
          kernel_regularizer=None, bias_regularizer=None, activity_regularizer=None, kernel_constraint=None,
          bias_constraint=None, trainable=True, name=None, reuse=None):
    """[..., n] -> [..., units]."""
    only("tf.layers.dense", {"kernel_constraint": kernel_constraint, "bias_constraint": bias_constraint})
    width = _bnn._width(inputs, "tf.layers.dense")
    with variable_scope(_named(name, "dense"), reuse=reuse):
        kernel = get_variable("kernel", [width, units], initializer=kernel_initializer, regularizer=kernel_regularizer,
                              trainable=trainable)
        flat = inputs if len(inputs.shape) == 2 else _ops.reshape(inputs, [-1, width])
        y = _ops.matmul(flat, kernel)
        if use_bias:
            y = _nn.bias_add(y, get_variable("bias", [units], initializer=bias_initializer or zeros_initializer(),
                                             regularizer=bias_regularizer, trainable=trainable))
        if len(inputs.shape) != 2:
            y = _ops.reshape(y, [-1] + [int(each) for each in inputs.shape[1:-1]] + [units])
        return _regularized(_ended(y, activation), activity_regularizer)


def _pair(value):
    return [value, value] if isinstance(value, int) else list(value)


def _channels_last(data_format, what):
    if data_format != "channels_last":
        raise ValueError(f"{what}: data_format is '{data_format}': channels_last is taken")


def conv2d(inputs, filters, kernel_size, strides=(1, 1), padding="valid", data_format="channels_last", dilation_rate=(1, 1),
           activation=None, use_bias=True, kernel_initializer=None, bias_initializer=None, kernel_regularizer=None,
           bias_regularizer=None, activity_regularizer=None, kernel_constraint=None, bias_constraint=None, trainable=True,
           name=None, reuse=None):
    """[B, H, W, C] -> [B, H', W', filters]."""
    only("tf.layers.conv2d", {"kernel_constraint": kernel_constraint, "bias_constraint": bias_constraint})
    _channels_last(data_format, "tf.layers.conv2d")
    width = _bnn._width(inputs, "tf.layers.conv2d")
    with variable_scope(_named(name, "conv2d"), reuse=reuse):
        kernel = get_variable("kernel", [*_pair(kernel_size), width, filters], initializer=kernel_initializer,
                              regularizer=kernel_regularizer, trainable=trainable)
        y = _nn.conv2d(inputs, kernel, [1, *_pair(strides), 1], padding.upper(), dilations=[1, *_pair(dilation_rate), 1])
        if use_bias:
            y = _nn.bias_add(y, get_variable("bias", [filters], initializer=bias_initializer or zeros_initializer(),
                                             regularizer=bias_regularizer, trainable=trainable))
        return _regularized(_ended(y, activation), activity_regularizer)


def _pooling(pool):
    def layer(inputs, pool_size, strides, padding="valid", data_format="channels_last", name=None):
        _channels_last(data_format, "tf.layers pooling")
        return pool(inputs, [1, *_pair(pool_size), 1], [1, *_pair(strides), 1], padding.upper())

    return layer


max_pooling2d, average_pooling2d = _pooling(_nn.max_pool), _pooling(_nn.avg_pool)


def flatten(inputs, name=None, data_format="channels_last"):
    """[B, ...] -> [B, n]."""
    return _ops.reshape(inputs, [-1, int(np.prod([int(each) for each in inputs.shape[1:]]))], name)


def dropout(inputs, rate=0.5, noise_shape=None, seed=None, training=False, name=None):
    """In training a share `rate` is 0; `training` is a bool of the program."""
    if not isinstance(training, (bool, np.bool_, int)):
        raise TypeError("tf.layers.dropout: training must be True or False, as the graph is built for one of them")
    return _nn.dropout(inputs, noise_shape=noise_shape, name=name, rate=rate) if training else inputs


def _none(variable):
    """No regularizer, whatever the scope's is."""


def batch_normalization(inputs, axis=-1, momentum=0.99, epsilon=1e-3, center=True, scale=True, beta_initializer=None,
                        gamma_initializer=None, moving_mean_initializer=None, moving_variance_initializer=None,
                        beta_regularizer=None, gamma_regularizer=None, beta_constraint=None, gamma_constraint=None,
                        training=False, trainable=True, name=None, reuse=None, fused=None, **others):
    """Normalised by the batch's statistics in training, whose moving means are in UPDATE_OPS, else by these."""
    only("tf.layers.batch_normalization", {**others, "beta_constraint": beta_constraint, "gamma_constraint": gamma_constraint},
         "renorm_momentum")
    if not isinstance(training, (bool, np.bool_, int)):
        raise TypeError("tf.layers.batch_normalization: training must be True or False")
    if axis not in (-1, len(inputs.shape) - 1):
        raise ValueError(f"tf.layers.batch_normalization: axis {axis}: the last one is taken")
    width = _bnn._width(inputs, "tf.layers.batch_normalization")
    with variable_scope(_named(name, "batch_normalization"), reuse=reuse):
        gamma = get_variable("gamma", [width], initializer=gamma_initializer or ones_initializer(),
                             regularizer=gamma_regularizer, trainable=trainable) if scale else None
        beta = get_variable("beta", [width], initializer=beta_initializer or zeros_initializer(),
                            regularizer=beta_regularizer, trainable=trainable) if center else None
        kept = [get_variable("moving_mean", [width], initializer=moving_mean_initializer or zeros_initializer(),
                             regularizer=_none, trainable=False),
                get_variable("moving_variance", [width], initializer=moving_variance_initializer or ones_initializer(),
                             regularizer=_none, trainable=False)]
        if not training:
            return _nn.batch_normalization(inputs, *kept, beta, gamma, epsilon)
        seen = _nn.moments(inputs, list(range(len(inputs.shape) - 1)))
        for variable, value in zip(kept, seen):
            add_to_collection(GraphKeys.UPDATE_OPS, variable.assign_sub((variable - value) * (1.0 - momentum)))
        return _nn.batch_normalization(inputs, *seen, beta, gamma, epsilon)


def __getattr__(name):
    raise AttributeError(f"braid.compat.v1.layers has no '{name}': docs/user/python.md lists what runs")
