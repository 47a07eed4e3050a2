"""tf.losses: of each value, weighted, summed up and divided by how many weights are not 0. Each adds itself to the
collection GraphKeys.LOSSES, which get_total_loss() sums up together with what regularizers have added."""

import numpy as np

from braid import ops as _ops
from braid.compat.v1 import nn as _nn
from braid.compat.v1._variables import GraphKeys, add_to_collection, get_collection
from braid.compat.v1.errors import only as _only
from braid.dtypes import float32
from braid.graph import default_graph


class Reduction:
    NONE = "none"
    SUM = "weighted_sum"
    SUM_OVER_BATCH_SIZE = "weighted_sum_over_batch_size"
    MEAN = "weighted_mean"
    SUM_OVER_NONZERO_WEIGHTS = SUM_BY_NONZERO_WEIGHTS = "weighted_sum_by_nonzero_weights"


def _converted(*values):
    return [_ops.cast(default_graph().convert(each), float32) for each in values]


def _no_nan(sum_, count):
    return _ops.call("DivNoNan", [sum_, count])


def compute_weighted_loss(losses, weights=1.0, scope=None, loss_collection=GraphKeys.LOSSES,
                          reduction=Reduction.SUM_BY_NONZERO_WEIGHTS):
    """The losses times the weights, which have their shape, or 1 where a weight is for all along an axis."""
    losses, weights = _converted(losses, weights)
    if len(weights.shape) not in (0, len(losses.shape)):
        raise ValueError(f"weights of shape {list(weights.shape)} for losses of shape {list(losses.shape)}: they need as "
                         "many axes, or none")
    weighted = losses * weights
    total = _ops.reduce_sum(weighted)
    if reduction == Reduction.NONE:
        made = weighted
    elif reduction == Reduction.SUM:
        made = total
    elif reduction == Reduction.MEAN:
        made = _no_nan(total, _ops.reduce_sum(_ops.ones_like(losses) * weights))
    elif reduction == Reduction.SUM_OVER_BATCH_SIZE:
        made = _no_nan(total, _ops.reduce_sum(_ops.ones_like(losses)))
    elif reduction == Reduction.SUM_BY_NONZERO_WEIGHTS:
        counted = _ops.cast(_ops.call("NotEqual", [weights, np.float32(0)]), float32)
        made = _no_nan(total, _ops.reduce_sum(_ops.ones_like(losses) * counted))
    else:
        raise ValueError(f"there is no reduction '{reduction}'")
    if loss_collection:
        add_to_collection(loss_collection, made)
    return made


def _pair(loss, labels, predictions, called="predictions"):
    """Floats, which need one shape: broadcast, labels [n] beside predictions [n, 1] would be n x n losses."""
    labels, predictions = _converted(labels, predictions)
    y, p = list(labels.shape), list(predictions.shape)
    if len(y) != len(p) or any(None not in (a, b) and a != b for a, b in zip(y, p)):
        raise ValueError(f"tf.losses.{loss}: labels are {y}, {called} {p}: they need one shape")
    return labels, predictions


def absolute_difference(labels, predictions, weights=1.0, scope=None, loss_collection=GraphKeys.LOSSES,
                        reduction=Reduction.SUM_BY_NONZERO_WEIGHTS):
    """|p - y|."""
    y, p = _pair("absolute_difference", labels, predictions)
    return compute_weighted_loss(_ops.abs(p - y), weights, scope, loss_collection, reduction)


def mean_squared_error(labels, predictions, weights=1.0, scope=None, loss_collection=GraphKeys.LOSSES,
                       reduction=Reduction.SUM_BY_NONZERO_WEIGHTS):
    """(p - y)^2."""
    y, p = _pair("mean_squared_error", labels, predictions)
    return compute_weighted_loss(_ops.call("SquaredDifference", [p, y]), weights, scope, loss_collection, reduction)


def log_loss(labels, predictions, weights=1.0, epsilon=1e-7, scope=None, loss_collection=GraphKeys.LOSSES,
             reduction=Reduction.SUM_BY_NONZERO_WEIGHTS):
    """Cross entropy of probabilities."""
    y, p = _pair("log_loss", labels, predictions)
    losses = -y * _ops.log(p + epsilon) - (1.0 - y) * _ops.log(1.0 - p + epsilon)
    return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def huber_loss(labels, predictions, weights=1.0, delta=1.0, scope=None, loss_collection=GraphKeys.LOSSES,
               reduction=Reduction.SUM_BY_NONZERO_WEIGHTS):
    """Half the square up to `delta`, and a line beyond it."""
    y, p = _pair("huber_loss", labels, predictions)
    size = _ops.abs(p - y)
    near = _ops.minimum(size, float(delta))
    losses = near * near * 0.5 + (size - near) * float(delta)
    return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def cosine_distance(labels, predictions, axis=None, weights=1.0, scope=None, loss_collection=GraphKeys.LOSSES,
                    reduction=Reduction.SUM_BY_NONZERO_WEIGHTS, dim=None):
    """1 less the products' sum along the axis, of vectors of length 1."""
    axis = dim if axis is None else axis
    if axis is None:
        raise ValueError("tf.losses.cosine_distance: it needs an axis")
    y, p = _pair("cosine_distance", labels, predictions)
    losses = 1.0 - _ops.reduce_sum(y * p, axis, keepdims=True)
    return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def hinge_loss(labels, logits, weights=1.0, scope=None, loss_collection=GraphKeys.LOSSES,
               reduction=Reduction.SUM_BY_NONZERO_WEIGHTS):
    """Of labels 0 and 1."""
    y, x = _pair("hinge_loss", labels, logits, "logits")
    losses = _nn.relu(1.0 - (2.0 * y - 1.0) * x)
    return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def sigmoid_cross_entropy(multi_class_labels, logits, weights=1.0, label_smoothing=0, scope=None,
                          loss_collection=GraphKeys.LOSSES, reduction=Reduction.SUM_BY_NONZERO_WEIGHTS):
    """tf.losses.sigmoid_cross_entropy."""
    labels, logits = _pair("sigmoid_cross_entropy", multi_class_labels, logits, "logits")
    labels = labels * (1.0 - label_smoothing) + 0.5 * label_smoothing if label_smoothing else labels
    losses = _nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
    return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def softmax_cross_entropy(onehot_labels, logits, weights=1.0, label_smoothing=0, scope=None,
                          loss_collection=GraphKeys.LOSSES, reduction=Reduction.SUM_BY_NONZERO_WEIGHTS):
    """tf.losses.softmax_cross_entropy; the labels get no gradient."""
    labels, logits = _pair("softmax_cross_entropy", onehot_labels, logits, "logits")
    if label_smoothing:
        labels = labels * (1.0 - label_smoothing) + label_smoothing / int(logits.shape[-1])
    losses = _nn.softmax_cross_entropy_with_logits(labels=_ops.call("StopGradient", [labels]), logits=logits)
    return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def sparse_softmax_cross_entropy(labels, logits, weights=1.0, scope=None, loss_collection=GraphKeys.LOSSES,
                                 reduction=Reduction.SUM_BY_NONZERO_WEIGHTS):
    """tf.losses.sparse_softmax_cross_entropy; labels [..., 1] beside logits [..., classes] too."""
    if len(labels.shape) == len(logits.shape):
        labels = _ops.squeeze(labels, [-1])
    losses = _nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def add_loss(loss, loss_collection=GraphKeys.LOSSES):
    """Adds a loss to the collection."""
    if loss_collection:
        add_to_collection(loss_collection, loss)


def get_losses(scope=None, loss_collection=GraphKeys.LOSSES):
    """The losses of the graph."""
    _only("tf.losses.get_losses", {"scope": scope})
    return get_collection(loss_collection)


def get_regularization_losses(scope=None):
    """What regularizers have added."""
    _only("tf.losses.get_regularization_losses", {"scope": scope})
    return get_collection(GraphKeys.REGULARIZATION_LOSSES)


def get_regularization_loss(scope=None, name="total_regularization_loss"):
    """The sum of what regularizers have added."""
    found = get_regularization_losses(scope)
    return _ops.add_n(found) if found else default_graph().constant(0.0, float32)


def get_total_loss(add_regularization_losses=True, name="total_loss", scope=None):
    """The sum of all losses of the graph, and of what regularizers have added."""
    found = get_losses(scope) + (get_regularization_losses(scope) if add_regularization_losses else [])
    if not found:
        raise ValueError("the graph has no losses: tf.losses.* adds them")
    return _ops.add_n(found, name=name)


def __getattr__(name):
    raise AttributeError(f"braid.compat.v1.losses has no '{name}': docs/user/python.md lists what runs")
