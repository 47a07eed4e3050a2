// Clipping of gradients by their global norm, as a rewrite of the training graph (Pascanu et al. 2013; TF
// clip_by_global_norm):
//   norm = scale * sqrt(sum of squares of all gradients),  g = g * min(1, clip_norm / norm)
// A table's row counts once, with the sum of its gradients. Thread rule: one thread.
#pragma once

#include <functional>
#include <vector>

#include "worker/step/training_graph.h"

namespace braid::worker {

/// Replaces half the squares of each gradient, in their order, by those of all ranks where a rank has only a
/// part.
using SumOverRanks = std::function<void(std::vector<ValueRef>& halves)>;

/// Replaces the gradients by clipped ones; does nothing when clip_norm is 0. `scaled`: they are sums that an
/// update multiplies by StepParams::grad_scale, so the norm is that of the product; else scale is 1. With
/// `sum_over_ranks` rows of negative indices are none.
void clip_by_global_norm(TrainingGraph& training, std::vector<VariableGradient>& gradients, float clip_norm,
                         bool scaled, const SumOverRanks& sum_over_ranks = {});

}  // namespace braid::worker
