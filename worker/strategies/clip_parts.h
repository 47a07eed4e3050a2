// Clipping of gradients by their norm where each rank has only its part of some variables: it has the squares
// of these only, and sees infinities in these only. Thread rule: one thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "worker/step/training_graph.h"
#include "worker/strategies/hybrid_rewrite.h"

namespace braid::worker {

/// Unscales (worker/step/loss_scale.h) and clips sums of gradients. `is_part`: of variables that are spread
/// over the ranks.
void clip_over_ranks(TrainingGraph& training, std::vector<VariableGradient>& gradients, float clip_norm,
                     const std::function<bool(const std::string& variable)>& is_part,
                     const AddCollective& add_collective);

}  // namespace braid::worker
