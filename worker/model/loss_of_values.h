// What a loss says of the prediction that it is made of. Thread rule: pure functions.
#pragma once

#include "engine/ir/graph.h"

namespace braid::worker {

/// Whether `loss` compares `prediction` itself with something, by squares, absolute differences or quantiles,
/// so that it is a value and no logit: between the two are differences, means and shapes, and nothing that
/// makes a probability.
bool is_loss_of_values(const Graph& graph, ValueRef prediction, ValueRef loss);

/// Whether `prediction` itself meets `label` in differences alone, whatever is made of them (log-cosh, say):
/// a value.
bool is_loss_of_differences(const Graph& graph, ValueRef prediction, NodeId label, ValueRef loss);

/// Whether `loss` takes the softmax of `prediction`, which it compares with shares of classes.
bool is_loss_of_class_logits(const Graph& graph, ValueRef prediction, ValueRef loss);

/// Whether `loss` takes a sigmoid of `prediction`, or its logarithm, before it meets `label`: a logit.
bool is_loss_of_logits(const Graph& graph, ValueRef prediction, NodeId label, ValueRef loss);

/// Whether a comparison makes what the loss takes of `label`, as a mask of values above a limit, so that the
/// label itself is no probability.
bool is_compared(const Graph& graph, NodeId label);

}  // namespace braid::worker
