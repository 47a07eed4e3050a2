#include "engine/rewrite/precision_roles.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>

#include "base/error.h"
#include "engine/ir/device_name.h"
#include "engine/ir/op.h"
#include "engine/ops/common/halves.h"
#include "engine/rewrite/rewrite.h"

namespace braid {
namespace {

bool is_static_float(const OutputInfo& info) {
  return info.dtype == DType::Float32 && info.shape.is_static();
}

}  // namespace

PrecisionRoles::PrecisionRoles(const Plan& plan, const std::vector<NodeId>& order)
    : plan_(plan),
      graph_(plan.program.graph),
      half_(plan.options.precision.half),
      on_device_(plan.options.domain == Domain::Device),
      steps_(graph_) {
  const std::string& pattern = plan.options.precision.keep_nodes;
  if (!pattern.empty()) {
    keep_ = std::make_unique<RE2>(pattern, RE2::Quiet);
    if (!keep_->ok())
      throw InvalidArgument(fmt::format("mixed_precision.keep_nodes: '{}' is no regular expression: {}",
                                        pattern, keep_->error()));
  }
  roles_.assign(static_cast<std::size_t>(graph_.size()), PrecisionRole::Fixed);
  for (const NodeId id : order) roles_[static_cast<std::size_t>(id)] = role_of(graph_.node(id));
}

PrecisionRoles::~PrecisionRoles() = default;

PrecisionRole PrecisionRoles::of(NodeId id) const {
  const auto place = static_cast<std::size_t>(id);
  return place < roles_.size() ? roles_[place] : PrecisionRole::Fixed;
}

bool PrecisionRoles::is_kept(const Node& node) const {
  const auto& ops = plan_.options.precision.keep_ops;
  return std::find(ops.begin(), ops.end(), node.op->name) != ops.end() ||
         (keep_ && RE2::PartialMatch(node.name, *keep_));
}

std::vector<int> PrecisionRoles::half_inputs(const Node& node) const {
  if (of(node.id) == PrecisionRole::Move && !half_form(*node.op)) return float_inputs(node);
  return braid::half_inputs(*half_form(*node.op), node);
}

std::vector<int> PrecisionRoles::half_outputs(const Node& node) const {
  if (of(node.id) == PrecisionRole::Move || of(node.id) == PrecisionRole::Region) {
    std::vector<int> floats;
    for (std::size_t o = 0; o < node.outputs.size(); ++o)
      if (node.outputs[o].dtype == DType::Float32) floats.push_back(static_cast<int>(o));
    return floats;
  }
  return braid::half_outputs(*half_form(*node.op), node);
}

std::vector<int> PrecisionRoles::float_inputs(const Node& node) const {
  std::vector<int> floats;
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    if (!uses_shape_only(node, i) && graph_.info(node.inputs[i]).dtype == DType::Float32)
      floats.push_back(static_cast<int>(i));
  return floats;
}

/// Whether the node has a kernel, where it will run, for halves in these inputs.
bool PrecisionRoles::has_kernel(const Node& node, const std::vector<int>& inputs, bool own_kernel) const {
  if (!on_device_) return true;
  if (!node.device.empty() && parse_device_name(node.device).kind.value_or("GPU") != "GPU") return false;
  const bool is_view = !node.op->views.empty() && node.op->views.size() == node.outputs.size();
  if (is_view) return true;
  if (node.op->cuda && own_kernel && !has_half_kernel_on_cuda(*node.op)) return false;
  std::vector<OutputInfo> infos;
  for (const ValueRef input : node.inputs) {
    infos.push_back(graph_.info(input));
    if (infos.back().dtype == DType::Resource) infos.back().dtype = variable_of(graph_, input).dtype;
  }
  for (const int i : inputs) infos[static_cast<std::size_t>(i)].dtype = half_;
  if (node.op->cuda_supports && !node.op->cuda_supports(node, infos)) return false;
  const HalfForm* form = half_form(*node.op);
  return !form || !form->pays || form->pays(node, infos);
}

bool PrecisionRoles::is_known(const Node& node) const {
  for (int o = 0; o < static_cast<int>(node.outputs.size()); ++o)
    if (graph_.known_value({node.id, o})) return true;
  return false;
}

PrecisionRole PrecisionRoles::role_of(const Node& node) {
  if (node.removed || plan_.is_fed(node) || is_known(node)) return PrecisionRole::Fixed;
  for (int o = 0; o < static_cast<int>(node.outputs.size()); ++o)
    if (plan_.feed_of({node.id, o}) >= 0) return PrecisionRole::Fixed;
  const HalfForm* form = half_form(*node.op);
  const bool is_product = form && form->kind == HalfKind::Product;
  if (is_product && takes_floats(node, *form)) {
    if (is_kept(node)) return stays(node, "as the job asks");
    if (!has_kernel(node, braid::half_inputs(*form, node), true))
      return stays(node, "no faster kernel for halves");
    ++products_;
    return PrecisionRole::Product;
  }
  if (is_kept(node)) return PrecisionRole::Fixed;
  if (is_region_node(node)) return PrecisionRole::Region;
  if (form && !is_product && takes_floats(node, *form) &&
      has_kernel(node, braid::half_inputs(*form, node), true))
    return form->kind == HalfKind::Move ? PrecisionRole::Move : PrecisionRole::Follower;
  return is_move(node) ? PrecisionRole::Move : PrecisionRole::Fixed;
}

PrecisionRole PrecisionRoles::stays(const Node& node, const char* why) {
  kept_[why + std::string(": ") + std::string(node.op->name)] += 1;
  return PrecisionRole::Fixed;
}

bool PrecisionRoles::takes_floats(const Node& node, const HalfForm& form) const {
  for (const int i : braid::half_inputs(form, node))
    if (!is_static_float(graph_.info(node.inputs[static_cast<std::size_t>(i)]))) return false;
  for (const int o : braid::half_outputs(form, node))
    if (!is_static_float(node.outputs[static_cast<std::size_t>(o)])) return false;
  return true;
}

bool PrecisionRoles::is_region_node(const Node& node) {
  if (!plan_.options.fusion || !is_plain(plan_, node) || !fusion::has_no_state(*node.op) ||
      node.outputs.empty())
    return false;
  if (on_device_ && (!node.op->cuda || !suits_device(plan_, node))) return false;
  return steps_.of(node.id) != nullptr;
}

bool PrecisionRoles::is_move(const Node& node) const {
  const OpDef& op = *node.op;
  if (op.traits.elements != Elements::Moves || op.traits.widening.rule != Widening::Rule::None ||
      op.stateful || op.side_effect || op.lane != Lane::Compute ||
      (op.role != OpRole::Ordinary && op.role != OpRole::Identity))
    return false;
  const std::vector<int> inputs = float_inputs(node);
  for (const ValueRef input : node.inputs)
    if (graph_.info(input).dtype == DType::Resource) return false;
  for (const OutputInfo& output : node.outputs)
    if (!is_static_float(output)) return false;
  return !inputs.empty() && has_kernel(node, inputs, false);
}

}  // namespace braid
