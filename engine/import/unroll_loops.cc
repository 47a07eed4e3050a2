#include "engine/import/unroll_loops.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "engine/import/branch_gates.h"
#include "engine/import/convert.h"
#include "engine/import/function_values.h"
#include "engine/import/import.h"
#include "engine/import/node_inputs.h"
#include "engine/ir/op.h"

namespace braid {
namespace {

constexpr int kMostTurns = 1024, kMostNodes = 1 << 18;

/// By a node's name, a constant that has its value.
using Constants = std::unordered_map<std::string, NodeDef>;

void make_constant(NodeDef& node, const Tensor& value) {
  node.set_op("Const");
  node.clear_input();
  node.clear_attr();
  (*node.mutable_attr())["dtype"].set_type(to_proto(value.dtype()));
  *(*node.mutable_attr())["value"].mutable_tensor() = to_proto(value);
}

/// What `value` is made of, as a graph of its own; it ends at `constants`.
GraphDef above(const GraphDef& graph, const std::string& value,
               const std::function<std::string(std::string)>& resolved, const Constants& constants = {}) {
  std::unordered_map<std::string, int> places;
  for (int i = 0; i < graph.node_size(); ++i) places.try_emplace(graph.node(i).name(), i);
  GraphDef part;
  std::set<std::string> seen;
  std::vector<std::string> open{split_value(value).first};
  while (!open.empty()) {
    const std::string name = open.back();
    open.pop_back();
    const auto at = places.find(name);
    if (at == places.end() || !seen.insert(name).second) continue;
    NodeDef& node = *part.add_node();
    if (const auto known = constants.find(name); known != constants.end()) {
      node = known->second;
      continue;
    }
    node = graph.node(at->second);
    node.mutable_attr()->erase("_class");
    // What only comes before does not change the value, and may not load by itself.
    const std::vector<std::string> values = data_inputs(node);
    node.mutable_input()->Assign(values.begin(), values.end());
    for (std::string& input : *node.mutable_input()) {
      input = resolved(input);
      open.push_back(split_value(input).first);
    }
  }
  return part;
}

/// x.shape[k] of a dimension that is known, where others are not: constants in the place of such nodes.
/// Whether there were some.
bool fold_dimensions(GraphDef& part, const Graph& graph) {
  bool any = false;
  for (NodeDef& node : *part.mutable_node()) {
    const NodeId id = node.op() == "StridedSlice" ? graph.find(node.name()) : kNoNode;
    if (id == kNoNode) continue;
    const Node& slice = graph.node(id);
    const Node& shape = graph.node(slice.inputs[0].node);
    const Tensor* begin = graph.known_value(slice.inputs[1]);
    if (shape.op->name != "Shape" || !begin || begin->elements() != 1 ||
        slice.attrs.get<std::int64_t>("shrink_axis_mask", 0) != 1)
      continue;
    const Shape& of = graph.info(shape.inputs[0]).shape;
    if (!of.has_rank()) continue;
    std::int64_t axis = tensor_to_int64s(*begin)[0];
    if (axis < 0) axis += of.rank();
    if (axis < 0 || axis >= of.rank() || of.dim(static_cast<int>(axis)) == Shape::kUnknown) continue;
    const std::int64_t size = of.dim(static_cast<int>(axis));
    const bool is_long = graph.info({id, 0}).dtype == DType::Int64;
    const Tensor value = is_long ? Tensor::scalar(size) : Tensor::scalar(static_cast<std::int32_t>(size));
    make_constant(node, value);
    any = true;
  }
  return any;
}

std::optional<Tensor> known_value(const GraphDef& graph, const std::string& value,
                                  const std::function<std::string(std::string)>& resolved,
                                  const Constants& constants) {
  const std::string name = resolved(value);
  try {
    GraphDef part = above(graph, name, resolved, constants);
    Graph imported = import_graph(part);
    const Tensor* known = imported.known_value(imported.parse_value(name));
    if (!known && fold_dimensions(part, imported)) {
      imported = import_graph(part);
      known = imported.known_value(imported.parse_value(name));
    }
    return known ? std::optional(*known) : std::nullopt;
  } catch (const InvalidArgument&) {
    if (!constants.empty())
      return known_value(graph, value, resolved, {});  // one may be read by another output
    return std::nullopt;
  }
}

}  // namespace

std::optional<Tensor> value_without_feeds(const GraphDef& graph, const std::string& value,
                                          const std::function<std::string(std::string)>& resolved) {
  return known_value(graph, value, resolved, {});
}

std::optional<std::int64_t> rows_without_feeds(const GraphDef& graph, const std::string& value,
                                               const std::function<std::string(std::string)>& resolved) {
  const std::string name = resolved(value);
  try {
    const Graph part = import_graph(above(graph, name, resolved));
    const Shape& shape = part.info(part.parse_value(name)).shape;
    if (!shape.has_rank() || shape.rank() == 0 || shape.dim(0) == Shape::kUnknown) return std::nullopt;
    return shape.dim(0);
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

namespace {

using Resolve = std::function<std::string(std::string)>;

const NodeDef* find_node(const GraphDef& graph, const std::string& value) {
  const std::string name = split_value(value).first;
  const auto at = std::find_if(graph.node().begin(), graph.node().end(),
                               [&](const NodeDef& node) { return node.name() == name; });
  return at == graph.node().end() ? nullptr : &*at;
}

/// Behind Identities.
const NodeDef* made_by(const GraphDef& graph, std::string value, const Resolve& resolved) {
  for (;;) {
    const NodeDef* node = find_node(graph, resolved(std::move(value)));
    if (!node || node->op() != "Identity") return node;
    value = node->input(0);
  }
}

std::optional<bool> known_bool(const GraphDef& graph, const std::string& value, const Resolve& resolved,
                               const Constants& constants) {
  const auto known = known_value(graph, value, resolved, constants);
  if (!known || known->dtype() != DType::Bool || known->elements() != 1) return std::nullopt;
  return known->data<bool>()[0];
}

std::optional<std::int64_t> known_integer(const GraphDef& graph, const std::string& value,
                                          const Resolve& resolved, const Constants& constants) {
  const auto known = known_value(graph, value, resolved, constants);
  if (!known || known->elements() != 1 || (known->dtype() != DType::Int32 && known->dtype() != DType::Int64))
    return std::nullopt;
  return tensor_to_int64s(*known)[0];
}

/// Whether a loop whose condition data decides may turn again: both sides of an And must allow it, and a
/// count is below the smaller of two limits only where it is below the one that is known. Nothing where there
/// is no limit.
std::optional<bool> may_go_on(const GraphDef& graph, const std::string& condition, const Resolve& resolved,
                              const Constants& constants) {
  if (const auto known = known_bool(graph, condition, resolved, constants)) return known;
  const NodeDef* node = made_by(graph, condition, resolved);
  if (!node || node->input_size() < 2) return std::nullopt;
  const std::string a = node->input(0), b = node->input(1);
  if (node->op() == "LogicalAnd") {
    const auto left = may_go_on(graph, a, resolved, constants),
               right = may_go_on(graph, b, resolved, constants);
    if (!left || !right) return left ? left : right;
    return *left && *right;
  }
  if (node->op() != "Less") return std::nullopt;
  const auto count = known_integer(graph, a, resolved, constants);
  const NodeDef* limit = made_by(graph, b, resolved);
  if (!count || !limit || limit->op() != "Minimum") return std::nullopt;
  for (const int side : {0, 1})
    if (const auto most = known_integer(graph, limit->input(side), resolved, constants))
      return *count < *most;
  return std::nullopt;
}

class Unrolling {
 public:
  Unrolling(const LoopParts& loop, const std::string& name, GraphDef& graph,
            const std::function<void(const NodeDef&)>& expand, const Resolve& resolved)
      : loop_(loop), name_(name), graph_(graph), expand_(expand), resolved_(resolved), values_(loop.first) {
    for (std::size_t v = 0; v < values_.size(); ++v) {
      const NodeDef* node = made_by(graph_, values_[v], resolved_);
      is_list_.push_back(type_of(v) == DT_VARIANT ||
                         (node && node->op().find("TensorList") != std::string::npos));
      const DataType type = type_of(v);
      if (!is_list_[v] && (type == DT_INT32 || type == DT_INT64 || type == DT_INVALID))
        counters_.push_back(v);
    }
    results_ = values_;
  }

  std::vector<std::string> run() {
    while (turns_again()) {
      if (++turn_ > kMostTurns || graph_.node_size() > kMostNodes)
        throw InvalidArgument(fmt::format("the loop turns more than {} times, or makes more than {} nodes",
                                          kMostTurns, kMostNodes));
    }
    return results_;
  }

 private:
  std::string call(NodeDef node, const char* what, const std::vector<std::string>& values) {
    node.set_name(fmt::format("{}/{}{}", name_, what, turn_));
    for (const std::string& value : values) node.add_input(value);
    expand_(node);
    return node.name();
  }

  void forget_from(int before) { graph_.mutable_node()->DeleteSubrange(before, graph_.node_size() - before); }

  bool turns_again() {
    const int before = graph_.node_size();
    const std::string test = call(loop_.test, "test", values_);
    if (const auto known = known_bool(graph_, test, resolved_, constants_)) {
      forget_from(before);
      if (!*known) return false;
    } else {
      const auto may = may_go_on(graph_, test, resolved_, constants_);
      if (!may)
        throw InvalidArgument(
            "control flow is not supported: how often the loop turns does not follow from the graph");
      if (!*may) {
        forget_from(before);
        return false;
      }
      const std::string taken = resolved_(test);
      alive_ = alive_.empty() ? taken : add("alive", "LogicalAnd", {alive_, taken});
    }
    take_turn();
    remember_counters();
    return true;
  }

  /// The next condition is found from what is known of the counters now, not from all turns before.
  void remember_counters() {
    std::erase_if(counters_, [&](std::size_t v) {
      const std::string name = resolved_(values_[v]);
      const auto known = known_value(graph_, name, resolved_, constants_);
      if (!known || known->elements() != 1) return true;
      const auto [node, output] = split_value(name);
      if (output != 0) return false;
      NodeDef& constant = constants_[node];
      constant.set_name(node);
      make_constant(constant, *known);
      return false;
    });
  }

  DataType type_of(std::size_t variable) const {
    return variable < loop_.types.size() ? loop_.types[variable] : DT_INVALID;
  }

  /// What enters a turn, behind gates where data decides whether it is taken.
  std::vector<std::string> gated_values() {
    std::vector<std::string> given = values_;
    if (alive_.empty()) return given;
    for (std::size_t v = 0; v < given.size(); ++v) {
      if (is_list_[v] || !has_gradients(type_of(v))) continue;
      const std::string name = fmt::format("{}/turn{}/gate{}", name_, turn_, v);
      add_gate(graph_, name, given[v], alive_, true, loop_.body);
      given[v] = name;
    }
    return given;
  }

  /// Turns that data decides are computed as if they were taken; their results count where they are.
  void take_turn() {
    const int before = graph_.node_size();
    const std::vector<std::string> given = gated_values();
    const int inside = graph_.node_size();
    const std::string body = call(loop_.body, "turn", given);
    if (!alive_.empty()) gate_reads(graph_, inside, alive_, true);
    for (std::size_t v = 0; v < values_.size(); ++v) {
      std::string next = resolved_(value_of(body, static_cast<int>(v)));
      if (next != given[v]) values_[v] = std::move(next);
    }
    if (alive_.empty()) {
      results_ = values_;
      return;
    }
    const int after = graph_.node_size();
    for (int i = before; i < after; ++i) {
      // How many there are is for data to say.
      if (graph_.node(i).op() == "TensorListPushBack")
        (*graph_.mutable_node(i)->mutable_attr())[kDataDecides].set_b(true);
      if (graph_.node(i).op() != "TensorListSetItem") continue;
      const std::string value = graph_.node(i).input(2);
      const std::string zeros = add(fmt::format("zeros{}_", i), "ZerosLike", {value});
      graph_.mutable_node(i)->set_input(2, add(fmt::format("item{}_", i), "Select", {alive_, value, zeros}));
    }
    for (std::size_t v = 0; v < values_.size(); ++v) {
      if (is_list_[v] || values_[v] == results_[v])
        results_[v] = values_[v];
      else
        results_[v] = add(fmt::format("variable{}_", v), "Select", {alive_, values_[v], results_[v]});
    }
  }

  std::string add(const std::string& what, const char* op, const std::vector<std::string>& inputs) {
    NodeDef& node = *graph_.add_node();
    node.set_name(fmt::format("{}/{}{}", name_, what, turn_));
    node.set_op(op);
    for (const std::string& input : inputs) node.add_input(input);
    return node.name();
  }

  const LoopParts& loop_;
  const std::string& name_;
  GraphDef& graph_;
  const std::function<void(const NodeDef&)>& expand_;
  const Resolve& resolved_;
  std::vector<std::string> values_, results_;  // as if all turns were taken; as the turns that are
  std::vector<bool> is_list_;
  std::vector<std::size_t> counters_;  // whole numbers that are known
  Constants constants_;                // theirs
  std::string alive_;                  // whether the turn is taken; empty: it is
  int turn_ = 0;
};

}  // namespace

std::vector<std::string> unroll_loop(const LoopParts& loop, const std::string& name, GraphDef& graph,
                                     const std::function<void(const NodeDef&)>& expand,
                                     const std::function<std::string(std::string)>& resolved) {
  return Unrolling(loop, name, graph, expand, resolved).run();
}

}  // namespace braid
