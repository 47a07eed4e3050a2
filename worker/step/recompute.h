// Recomputation of activations (Chen et al. 2016, arXiv 1604.06174) as a rewrite of the differentiated graph:
// what a part of the forward pass computes is not kept for the backward pass, which computes it again from
// what other parts keep. The copies, "<name>/again", wait for the gradient that comes into their part, so
// that memory for them is that of one part at a time. A value has the same bits both times.
//
// Kept are what the forward pass reads outside of the part that makes it, variables, and what draws random
// numbers or has an effect. Thread rule: one thread.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/step/training_graph.h"

namespace braid::worker {

/// Parts by the nodes that they consist of.
using RecomputedParts = std::map<NodeId, std::int64_t>;

/// Of patterns (RE2) for all of a node's name: nodes of which the first group of a pattern has the same text
/// are one part; without a group, nodes that hang together are. Throws: InvalidArgument for what is no
/// pattern, or fits no node of the forward pass.
RecomputedParts parts_by_name(const TrainingGraph& training, const std::vector<std::string>& patterns);

/// Result: nodes that are computed twice.
std::int64_t recompute(TrainingGraph& training, const RecomputedParts& parts);

/// What a step is with some parts.
struct StepEstimate {
  std::uint64_t bytes = 0;  // of the arena
  double cost_us = 0;       // modelled
};
/// Of `count` choices the cheapest with which a step fits into `bytes`, the first among equals. `estimate` is
/// asked for each. Throws: InvalidArgument with `field`, the least that was found and `advice` where none
/// fits.
std::pair<std::size_t, StepEstimate> cheapest_that_fits(
    std::string_view field, std::uint64_t bytes, std::size_t count,
    const std::function<StepEstimate(std::size_t choice)>& estimate, std::string_view advice);

using EstimateStep = std::function<StepEstimate(const TrainingGraph&)>;

struct RecomputeChoice {
  RecomputedParts parts;
  std::string text;  // what was chosen, for people
};

/// The cheapest division of the forward pass with which the step fits into `bytes`: nothing, all that is not
/// a product, or parts of 1, 2, 3, 4, 6, 8, ... products. `estimate` is asked for each. Throws:
/// InvalidArgument with the least that was found where none fits.
RecomputeChoice parts_that_fit(const TrainingGraph& training, std::uint64_t bytes,
                               const EstimateStep& estimate);

}  // namespace braid::worker
