#include "worker/strategies/experts_text.h"

#include <fmt/format.h>

#include "engine/ir/op.h"
#include "engine/ops/sparse/expert_slots.h"
#include "engine/program/program.h"
#include "worker/strategies/tensor_text.h"

namespace braid::worker {
namespace {

/// Of one pass of the step, within a group; bytes of a worker's values.
std::string pass_text(const ExpertFlow& flow, bool backward) {
  struct Kind {
    const char* name;
    std::int64_t count = 0, bytes = 0;
  };
  Kind all_to_alls{"all-to-alls"}, gathers{"gathers"}, sums{"sums of slices"};
  for (const ExpertExchange& exchange : flow.exchanges) {
    if (exchange.backward != backward) continue;
    Kind& kind = exchange.is_all_to_all()                  ? all_to_alls
                 : exchange.to.kind == ExpertLayout::Total ? sums
                                                           : gathers;
    ++kind.count;
    kind.bytes += exchange.bytes;
  }
  std::string text = fmt::format("  {}: {} {} of {}", backward ? "backward" : "forward", all_to_alls.count,
                                 all_to_alls.name, amount_text(all_to_alls.bytes));
  for (const Kind& kind : {gathers, sums})
    if (kind.count > 0) text += fmt::format(", {} {} of {}", kind.count, kind.name, amount_text(kind.bytes));
  return text + "\n";
}

/// A line for each layer that chooses experts.
std::string routes_text(const PipelineNodes& nodes) {
  std::string text;
  for (const NodeId id : nodes.order) {
    const Node& node = nodes.inferred.node(id);
    if (node.op->name != "braid.RouteToExperts") continue;
    const Shape& choices = nodes.inferred.info(node.inputs[0]).shape;
    if (!choices.is_static()) continue;
    const ExpertSlots slots(choices[0], choices[1], node.attrs.get("experts", std::int64_t{1}),
                            node.attrs.get("groups", std::int64_t{1}),
                            node.attrs.get("capacity_factor", 1.25));
    text += fmt::format(
        "  {}: {} experts; {} tokens of a worker in {} group{}, {} choices each; capacity of an expert {} of "
        "a "
        "group\n",
        node.name, slots.experts, slots.tokens, slots.groups, slots.groups == 1 ? "" : "s", slots.choices,
        slots.capacity);
  }
  return text;
}

}  // namespace

std::string experts_text(const Mesh& mesh, const ExpertsPlan* plan, const ExpertGradients& gradients,
                         const Program& step) {
  std::string text = fmt::format("experts: {} group{} of {} worker{}", mesh.data, mesh.data == 1 ? "" : "s",
                                 mesh.workers, mesh.workers == 1 ? "" : "s");
  std::int64_t variables = 0, spread = 0, own = 0;
  for (const ProgramVariable& variable : step.variables)
    variables += variable.shape.elements() * static_cast<std::int64_t>(dtype_size(variable.dtype));
  std::string layers;
  for (const TensorSlice& slice : plan ? plan->slices : std::vector<TensorSlice>{}) {
    const std::int64_t bytes = slice.whole.shape.elements() * std::int64_t{sizeof(float)};
    spread += bytes;
    own += bytes / slice.parts;
    layers += fmt::format("  {} {} -> {}\n", slice.whole.name, slice.whole.shape.to_string(),
                          slice.local_shape().to_string());
  }
  text += fmt::format(", {} variables spread: {} of weights, {} a worker\n",
                      plan ? plan->slices.size() : std::size_t{0}, amount_text(spread), amount_text(own));
  text += layers;
  if (plan) text += routes_text(plan->nodes) + pass_text(plan->flow, false) + pass_text(plan->flow, true);
  text += fmt::format("  gradients: {} over all workers", amount_text(gradients.of_all));
  if (gradients.of_experts > 0) text += fmt::format(", {} between groups", amount_text(gradients.of_experts));
  text += fmt::format(
      "\n  a worker: variables with slots {}, arena {}\n", amount_text(variables),
      amount_text(static_cast<std::int64_t>(step.stats.arena_bytes + step.stats.device_arena_bytes)));
  return text;
}

}  // namespace braid::worker
