"""Losses: means over the batch, as steps of several workers are averaged."""

from __future__ import annotations

from braid import ops
from braid.dtypes import float32, int64
from braid.graph import Tensor


def sigmoid(logits: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean cross entropy of sigmoid(logits) with labels 0 and 1, both [B] or [B, 1]."""
    logits = _flat(logits)
    labels = ops.cast(_flat(labels), float32)
    # max(z, 0) - z y + log(1 + exp(-|z|)), as TensorFlow's sigmoid_cross_entropy_with_logits.
    loss = ops.relu(logits) - logits * labels + ops.log1p(ops.exp(-abs(logits)))
    return ops.reduce_mean(loss if weight is None else loss * _flat(weight))


def softmax(logits: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean cross entropy of softmax(logits) [B, classes] with labels [B] of integers."""
    loss = ops.call("SparseSoftmaxCrossEntropyWithLogits", [logits, ops.cast(_flat(labels), int64)])[0]
    return ops.reduce_mean(loss if weight is None else loss * _flat(weight))


def squared(values: Tensor, targets: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean squared difference."""
    difference = _flat(values) - ops.cast(_flat(targets), float32)
    loss = difference * difference
    return ops.reduce_mean(loss if weight is None else loss * _flat(weight))


def _flat(value: Tensor) -> Tensor:
    return ops.reshape(value, [-1]) if value.shape is None or len(value.shape) != 1 else value
