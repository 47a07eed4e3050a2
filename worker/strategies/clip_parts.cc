#include "worker/strategies/clip_parts.h"

#include <utility>

#include "worker/step/clip_gradients.h"
#include "worker/step/loss_scale.h"

namespace braid::worker {

void clip_over_ranks(TrainingGraph& training, std::vector<VariableGradient>& gradients, float clip_norm,
                     const std::function<bool(const std::string&)>& is_part,
                     const AddCollective& add_collective) {
  const auto summed = [&](const char* name) {  // of scalars, one a gradient
    return [&, name](std::vector<ValueRef>& values) {
      std::vector<ValueRef*> of_parts;
      Node node;
      node.name = training.graph.unique_name(name);
      for (std::size_t g = 0; g < gradients.size(); ++g) {
        if (!is_part(gradients[g].variable.name)) continue;
        of_parts.push_back(&values[g]);
        node.inputs.push_back(values[g]);
      }
      if (of_parts.empty()) return;
      const NodeId id = add_collective(std::move(node), "braid.AllReduce");
      for (std::size_t i = 0; i < of_parts.size(); ++i) *of_parts[i] = {id, static_cast<int>(i)};
    };
  };
  unscale_gradients(training, gradients, summed("all_reduce/not_finite"));
  clip_by_global_norm(training, gradients, clip_norm, true, summed("all_reduce/norms"));
}

}  // namespace braid::worker
