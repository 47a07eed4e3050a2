"""Layers: functions that make variables and nodes. Names are made unique; a layer that is called twice has two sets of
variables. Last dimensions of inputs must be known."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from braid import _braid, ops
from braid.graph import Assignment, Tensor
from braid.scopes import name_scope, variable

Activation = str | Callable[[Tensor], Tensor] | None


def _width(x: Tensor, what: str) -> int:
    if x.shape is None or not x.shape or x.shape[-1] is None:
        from braid._braid import InvalidArgument
        raise InvalidArgument(f"{what}: the last dimension of '{x.name}' is not known")
    return x.shape[-1]


def _glorot(fan_in: int, fan_out: int) -> tuple[str, float, float]:
    limit = math.sqrt(6.0 / (fan_in + fan_out))
    return "uniform", -limit, limit


def dense(x: Tensor, units: int, activation: Activation = None, name: str = "dense", bias: bool = True) -> Tensor:
    """x W + b: [..., in] -> [..., units]. `activation`: a function, or the name of one in bd.ops."""
    width = _width(x, "dense")
    with name_scope(name):
        kernel = variable("kernel", [width, units], _glorot(width, units))
        flat = x if len(x.shape) == 2 else ops.reshape(x, [-1, width])
        y = ops.matmul(flat, kernel)
        if bias:
            y = ops.call("BiasAdd", [y, variable("bias", [units])])
        if len(x.shape) != 2:
            y = ops.reshape(y, [-1] + [int(d) for d in x.shape[1:-1]] + [units])
        return _activated(y, activation)


def _activated(y: Tensor, activation: Activation) -> Tensor:
    if activation is None:
        return y
    return getattr(ops, activation)(y) if isinstance(activation, str) else activation(y)


def mlp(x: Tensor, widths: Sequence[int], activation: Activation = "relu", dropout: float = 0.0, name: str = "mlp",
        last: Activation = None) -> Tensor:
    """Dense layers one behind the other; `last` is the activation behind the last one, where that differs."""
    with name_scope(name):
        for i, width in enumerate(widths):
            is_last = i + 1 == len(widths)
            x = dense(x, width, (last if last is not None else activation) if is_last else activation, f"layer_{i}")
            x = ops.dropout(x, dropout) if dropout else x
        return x


def embed(ids: Tensor, rows: int, width: int, sparse: bool = True, name: str = "embed", init: tuple[Any, ...] | None = None,
          combine: str | None = "flatten") -> Tensor:
    """Rows of a table [rows, width] at `ids` [B] -> [B, width], or [B, n] -> [B, n * width] ("flatten"),
    [B, width] ("sum", "mean"), [B, n, width] (None). `sparse`: trained by rows. Ids that are no row fail the step."""
    with name_scope(name):
        table = variable("table", [rows, width], init or ("uniform", -1 / math.sqrt(width), 1 / math.sqrt(width)),
                         sparse=sparse)
        found = ops.call("ResourceGather", [table.handle, ids], {"dtype": table.dtype})
        if len(ids.shape) == 1 or combine is None:
            return found
        if combine == "flatten":
            return ops.reshape(found, [-1, int(ids.shape[1]) * width])
        return (ops.reduce_sum if combine == "sum" else ops.reduce_mean)(found, 1)


def conv2d(x: Tensor, filters: int, kernel: int | Sequence[int] = 3, strides: int = 1, padding: str = "SAME",
           activation: Activation = None, name: str = "conv2d", bias: bool = True) -> Tensor:
    """[B, H, W, C] -> [B, H', W', filters]."""
    channels = _width(x, "conv2d")
    size = (kernel, kernel) if isinstance(kernel, int) else tuple(kernel)
    with name_scope(name):
        area = size[0] * size[1]
        weights = variable("kernel", [*size, channels, filters], _glorot(area * channels, area * filters))
        y = ops.call("Conv2D", [x, weights], {"strides": [1, strides, strides, 1], "padding": padding})
        if bias:
            y = ops.call("BiasAdd", [y, variable("bias", [filters])])
        return _activated(y, activation)


def layer_norm(x: Tensor, epsilon: float = 1e-6, name: str = "layer_norm") -> Tensor:
    """(x - mean) / deviation * gamma + beta along the last axis."""
    width = _width(x, "layer_norm")
    with name_scope(name):
        gamma, beta = variable("gamma", [width], ("constant", 1.0)), variable("beta", [width])
        mean = ops.reduce_mean(x, -1, keepdims=True)
        centred = x - mean
        scale = ops.rsqrt(ops.reduce_mean(centred * centred, -1, keepdims=True) + epsilon)
        return centred * scale * gamma + beta


def batch_norm(x: Tensor, training: bool, momentum: float = 0.99, epsilon: float = 1e-3,
               name: str = "batch_norm") -> tuple[Tensor, list[Assignment]]:
    """Normalised by the batch's mean and variance in training, else by what was kept of them. Returns (y, updates): the
    updates belong into Outputs.updates."""
    width = _width(x, "batch_norm")
    with name_scope(name):
        gamma, beta = variable("gamma", [width], ("constant", 1.0)), variable("beta", [width])
        moving_mean = variable("moving_mean", [width], trainable=False)
        moving_variance = variable("moving_variance", [width], ("constant", 1.0), trainable=False)
        if not training:
            return (x - moving_mean) * ops.rsqrt(moving_variance + epsilon) * gamma + beta, []
        axes = list(range(len(x.shape) - 1))
        mean = ops.reduce_mean(x, axes)
        centred = x - mean
        variance = ops.reduce_mean(centred * centred, axes)
        updates = [moving_mean.assign_sub((moving_mean - mean) * (1 - momentum)),
                   moving_variance.assign_sub((moving_variance - variance) * (1 - momentum))]
        return centred * ops.rsqrt(variance + epsilon) * gamma + beta, updates


def attention(query: Tensor, key: Tensor, value: Tensor, heads: int = 1, name: str = "attention") -> Tensor:
    """Scaled dot products of [B, T, C] with [B, S, C], in `heads` parts of C; -> [B, T, C] behind a dense layer."""
    width = _width(query, "attention")
    with name_scope(name):
        q, k, v = (_heads(dense(x, width, None, part), heads) for x, part in
                   ((query, "query"), (key, "key"), (value, "value")))
        scores = ops.matmul(q, k, transpose_b=True) * (1.0 / math.sqrt(width // heads))
        mixed = ops.matmul(ops.softmax(scores), v)
        mixed = ops.reshape(ops.transpose(mixed, [0, 2, 1, 3]), [-1, int(query.shape[1]), width])
        return dense(mixed, width, None, "output")


def _heads(x: Tensor, heads: int) -> Tensor:
    steps, width = int(x.shape[1]), int(x.shape[2])
    return ops.transpose(ops.reshape(x, [-1, steps, heads, width // heads]), [0, 2, 1, 3])


def gru(x: Tensor, units: int, name: str = "gru") -> Tensor:
    """The last state [B, units] of a gated recurrent unit over [B, T, C], unrolled over T, which must be known."""
    width, steps = _width(x, "gru"), x.shape[1]
    with name_scope(name):
        kernel = variable("kernel", [width, 3 * units], _glorot(width, 3 * units))
        recurrent = variable("recurrent", [units, 3 * units], _glorot(units, 3 * units))
        bias = variable("bias", [3 * units])
        inputs = ops.reshape(ops.matmul(ops.reshape(x, [-1, width]), kernel) + bias, [-1, int(steps), 3 * units])
        state: Tensor | None = None
        for t in range(steps):
            z, r, h = ops.split(inputs[:, t], 3, -1)
            if state is None:
                state = (1.0 - ops.sigmoid(z)) * ops.tanh(h)
                continue
            uz, ur, uh = ops.split(ops.matmul(state, recurrent), 3, -1)
            z, r = ops.sigmoid(z + uz), ops.sigmoid(r + ur)
            state = z * state + (1.0 - z) * ops.tanh(h + r * uh)
        if state is None:
            raise _braid.InvalidArgument("gru: its input has no steps")
        return state


def dropout(x: Tensor, rate: float, name: str | None = None) -> Tensor:
    """bd.ops.dropout; pass `rate * training` where the model is traced for both."""
    return ops.dropout(x, rate, name)


relu, sigmoid, tanh, softmax = (getattr(ops, name) for name in ("relu", "sigmoid", "tanh", "softmax"))
