// Which weights strategy EXPERTS spreads over the workers of a group: those that strategy.experts.match
// names, those that are found by how they are used, and what goes along, such as biases. Thread rule: values
// and pure functions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "worker/strategies/experts_flow.h"
#include "worker/strategies/tensor_plan.h"

namespace braid::proto {
class Experts;
}

namespace braid::worker {

struct ExpertsPlan {
  PipelineNodes nodes;
  std::unique_ptr<ExpertGraph> graph;  // of nodes
  std::vector<TensorSlice> slices;     // by their variables' order in the graph
  ExpertFlow flow;

  const TensorSlice* find(const std::string& variable) const;
};

/// Throws: InvalidArgument with the field and the variable: a pattern that fits no weights of experts, or
/// weights that are not cut into so many equal parts; no weights of experts at all.
std::unique_ptr<ExpertsPlan> plan_experts(const TrainingGraph& training, const proto::Experts& how,
                                          int parts);

}  // namespace braid::worker
