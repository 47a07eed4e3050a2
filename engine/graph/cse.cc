// Merges nodes that compute the same: one op, equal attributes, the same inputs (or equal small constants, or
// where only the shape is used, one shape) and control inputs, and the same wishes about device and stream,
// so that what the user put apart stays apart. Never merged: stateful ops, side effects, handles, other lanes
// than Compute, views (they cost nothing), and nodes that are fed.
#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <tuple>

#include "base/init.h"
#include "engine/graph/passes.h"
#include "engine/ir/op.h"
#include "engine/program/stream_rules.h"

namespace braid {
namespace {

bool may_merge(const Plan& plan, const Node& node) {
  const OpDef& op = *node.op;
  if (op.stateful || op.side_effect || op.lane != Lane::Compute || !op.views.empty()) return false;
  if (node.outputs.empty() || node.inputs.empty()) return false;
  for (int output = 0; output < static_cast<int>(node.outputs.size()); ++output)
    if (plan.feed_of({node.id, output}) >= 0) return false;
  return std::all_of(node.inputs.begin(), node.inputs.end(),
                     [&](ValueRef in) { return plan.program.graph.info(in).dtype != DType::Resource; });
}

bool equal(const Attr& a, const Attr& b) {
  const auto &va = static_cast<const AttrValue_&>(a), &vb = static_cast<const AttrValue_&>(b);
  if (va.index() != vb.index()) return false;
  return std::visit(
      [&](const auto& x) {
        using T = std::decay_t<decltype(x)>;
        const T& y = std::get<T>(vb);
        if constexpr (std::is_same_v<T, Tensor>) {
          return x.dtype() == y.dtype() && x.shape() == y.shape() && x.bytes() == y.bytes() &&
                 std::memcmp(x.raw(), y.raw(), x.bytes()) == 0;
        } else {
          return x == y;
        }
      },
      va);
}

bool equal(const AttrMap& a, const AttrMap& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](const auto& x, const auto& y) {
           return x.first == y.first && equal(x.second, y.second);
         });
}

/// Whether the rules file, too, has them on one stream.
bool same_rule(const Plan& plan, const Node& a, const Node& b) {
  const auto& rules = plan.options.streams.rules;
  const auto stream_of = [&](const Node& node) {
    const auto rule = rules->find(node.name);
    return rule ? rules->rule(*rule).stream : kNoStream;
  };
  return !rules || stream_of(a) == stream_of(b);
}

/// The inputs, of those whose shape alone is used the first one of that shape.
class Shapes {
 public:
  std::vector<ValueRef> inputs_of(const Graph& graph, const Node& node) {
    std::vector<ValueRef> inputs = node.inputs;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const OutputInfo& info = graph.info(inputs[i]);
      if (uses_shape_only(node, i) && info.shape.is_static())
        inputs[i] = seen_.try_emplace({info.dtype, info.shape.to_string()}, inputs[i]).first->second;
    }
    return inputs;
  }

 private:
  std::map<std::pair<DType, std::string>, ValueRef> seen_;
};

/// REQUIRES: equal ops and inputs.
bool same_work(const Node& a, const Node& b) {
  return a.control_inputs == b.control_inputs && a.stream == b.stream && a.colocate_with == b.colocate_with &&
         a.device == b.device && a.include_grad == b.include_grad && equal(a.attrs, b.attrs);
}

/// Small constants by content: graphs have one of their own for each axis, each shape.
class Constants {
 public:
  /// The first of those that equal this value; itself where it is not such a constant.
  ValueRef first_of(const Plan& plan, ValueRef value) {
    constexpr std::size_t kLargest = 4096;
    const Tensor* known = plan.program.graph.known_value(value);
    if (!known || known->dtype() == DType::String || known->bytes() > kLargest || plan.feed_of(value) >= 0 ||
        !plan.program.graph.node(value.node).control_inputs.empty())
      return value;
    const auto* bytes = reinterpret_cast<const char*>(known->raw());
    return seen_
        .try_emplace({known->dtype(), known->shape().to_string(), std::string(bytes, known->bytes())}, value)
        .first->second;
  }

 private:
  std::map<std::tuple<DType, std::string, std::string>, ValueRef> seen_;
};

}  // namespace

void eliminate_common_subexpressions(Plan& plan) {
  Graph& graph = plan.program.graph;
  struct Key {
    const OpDef* op;
    std::vector<ValueRef> inputs;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, std::vector<NodeId>> seen;
  std::vector<NodeId> merged_into(static_cast<std::size_t>(graph.size()), kNoNode);
  const auto redirect = [&](NodeId& id) {
    if (id != kNoNode && merged_into[static_cast<std::size_t>(id)] != kNoNode)
      id = merged_into[static_cast<std::size_t>(id)];
  };
  Constants constants;
  Shapes shapes;
  int merged = 0;
  for (const NodeId id : graph.topological_order()) {
    Node& node = graph.mutable_node(id);
    for (ValueRef& in : node.inputs) redirect(in.node);
    for (NodeId& control : node.control_inputs) redirect(control);
    redirect(node.colocate_with);
    if (!may_merge(plan, node)) continue;
    for (ValueRef& in : node.inputs) in = constants.first_of(plan, in);
    auto& same = seen[{node.op, shapes.inputs_of(graph, node)}];
    const auto twin = std::find_if(same.begin(), same.end(), [&](NodeId other) {
      const Node& before = graph.node(other);
      return same_work(before, node) && same_rule(plan, before, node);
    });
    if (twin == same.end()) {
      same.push_back(id);
      continue;
    }
    merged_into[static_cast<std::size_t>(id)] = *twin;
    ++merged;
  }
  for (NodeId id = 0; id < graph.size(); ++id)
    if (!graph.node(id).removed) redirect(graph.mutable_node(id).colocate_with);
  for (ValueRef& fetch : plan.fetches) redirect(fetch.node);
  for (NodeId& target : plan.targets) redirect(target);
  if (merged > 0) plan.note(std::to_string(merged) + " nodes repeat others");
}

}  // namespace braid
