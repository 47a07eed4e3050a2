#include "worker/strategies/experts_plan.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "engine/ir/op.h"
#include "proto/job.pb.h"

namespace braid::worker {
namespace {

/// Behind a refusal, where variables look like one expert each: names that differ by the number behind
/// "expert" alone ("experts.0.w1.weight", "expert_1/kernel"), of one shape. What to write in their place.
std::string advice_on_separate(const TrainingGraph& training) {
  static const RE2 numbered("(?i)(.*experts?[ _./-]?)[0-9]+([ _./-].*)?");
  std::map<std::pair<std::string, std::string>, std::vector<const VariableInfo*>> families;
  for (const VariableGradient& gradient : training.gradients) {
    std::string before, behind;
    if (!RE2::FullMatch(gradient.variable.name, numbered, &before, &behind)) continue;
    families[{before + "#" + behind, gradient.variable.shape.to_string()}].push_back(&gradient.variable);
  }
  for (const auto& [family, members] : families) {
    if (members.size() < 2 || members.front()->shape.rank() < 2) continue;
    std::string stacked = fmt::format("[{}", members.size());
    for (const std::int64_t size : members.front()->shape.dims()) stacked += fmt::format(", {}", size);
    return fmt::format(
        ". '{}', '{}' and so on ({} of shape {}) look like an expert each, and variables are not joined: "
        "write them as one variable of shape {}], and the experts as a product of all of them (Einsum "
        "\"eti,eio->eto\", or BatchMatMulV2) of tokens that braid.DispatchTokens or masks have sent "
        "(docs/user/experts.md)",
        members[0]->name, members[1]->name, members.size(), family.second, stacked);
  }
  return {};
}

class ExpertsPlanner {
 public:
  ExpertsPlanner(const TrainingGraph& training, const proto::Experts& how, ExpertsPlan& plan, int parts)
      : training_(training), how_(how), plan_(plan), parts_(parts) {}

  void run() {
    take_variables();
    plan_.graph = std::make_unique<ExpertGraph>(
        training_, plan_.nodes, parts_,
        [this](const std::string& variable, int axis) { return may_slice(variable, axis); });
    const std::vector<ExpertLayer> layers = plan_.graph->layers();
    std::map<std::string, int> axes = matched(layers);
    if (how_.automatic())
      for (const ExpertLayer& layer : layers)
        if (may_slice(layer.variable, layer.axis)) axes.emplace(layer.variable, layer.axis);
    if (axes.empty())
      throw InvalidArgument(fmt::format(
          "strategy.kind EXPERTS: the model has no weights of experts that are cut into {} equal parts: "
          "products with an axis of the weights, of what they multiply and of the result{}",
          parts_, advice_on_separate(training_)));
    for (plan_.flow = plan_.graph->flow(axes); !plan_.flow.wishes.empty();
         plan_.flow = plan_.graph->flow(axes))
      axes.insert(plan_.flow.wishes.begin(), plan_.flow.wishes.end());
    for (const VariableGradient& gradient : training_.gradients)
      if (const auto at = axes.find(gradient.variable.name); at != axes.end())
        plan_.slices.push_back({gradient.variable, at->second, parts_, false});
  }

 private:
  /// Those whose gradients there are, dense ones, and that are read in no way but by their value.
  void take_variables() {
    const Graph& graph = plan_.nodes.inferred;
    for (const VariableGradient& gradient : training_.gradients)
      if (gradient.variable.dtype == DType::Float32 && !gradient.slices)
        variables_.emplace(gradient.variable.name, gradient.variable);
    for (const NodeId id : plan_.nodes.order) {
      const Node& node = graph.node(id);
      if (node.op->role == OpRole::Read || node.op->role == OpRole::Identity) continue;
      for (const ValueRef input : node.inputs)
        if (graph.info(input).dtype == DType::Resource) variables_.erase(variable_of(graph, input).name);
    }
  }

  bool may_slice(const std::string& variable, int axis) const {
    const auto at = variables_.find(variable);
    return at != variables_.end() && at->second.shape.rank() > axis && at->second.shape[axis] % parts_ == 0;
  }

  std::map<std::string, int> matched(const std::vector<ExpertLayer>& layers) const {
    std::map<std::string, int> axes;
    for (int m = 0; m < how_.match_size(); ++m) {
      const std::string place = fmt::format("strategy.experts.match[{}] '{}'", m, how_.match(m));
      const RE2 pattern(how_.match(m), RE2::Quiet);
      if (!pattern.ok()) throw InvalidArgument(place + ": " + pattern.error());
      bool fits = false;
      for (const ExpertLayer& layer : layers) {
        if (!RE2::FullMatch(layer.variable, pattern)) continue;
        fits = true;
        const auto at = variables_.find(layer.variable);
        if (at == variables_.end())
          throw InvalidArgument(
              fmt::format("{}: variable '{}' stays whole: it is frozen, or read by more than its value",
                          place, layer.variable));
        if (!may_slice(layer.variable, layer.axis))
          throw InvalidArgument(fmt::format(
              "{}: variable '{}' {} has {} experts, which {} workers do not "
              "share evenly",
              place, layer.variable, at->second.shape.to_string(), at->second.shape[layer.axis], parts_));
        axes.emplace(layer.variable, layer.axis);
      }
      if (!fits)
        throw InvalidArgument(place + " fits no weights with an axis of experts that a product has too" +
                              advice_on_separate(training_));
    }
    return axes;
  }

  const TrainingGraph& training_;
  const proto::Experts& how_;
  ExpertsPlan& plan_;
  const int parts_;
  std::map<std::string, VariableInfo> variables_;  // that can be cut
};

}  // namespace

const TensorSlice* ExpertsPlan::find(const std::string& variable) const {
  const auto at = std::find_if(slices.begin(), slices.end(),
                               [&](const TensorSlice& slice) { return slice.whole.name == variable; });
  return at == slices.end() ? nullptr : &*at;
}

std::unique_ptr<ExpertsPlan> plan_experts(const TrainingGraph& training, const proto::Experts& how,
                                          int parts) {
  auto plan = std::make_unique<ExpertsPlan>();
  plan->nodes = pipeline_nodes(training, fed_columns(training));
  ExpertsPlanner(training, how, *plan, parts).run();
  return plan;
}

}  // namespace braid::worker
