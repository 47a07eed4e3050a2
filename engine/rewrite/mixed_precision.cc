// Mixed precision: where PrecisionOptions::half says so, products (OpDef that takes_halves() as
// HalfKind::Product) read float16 or bfloat16 and add up in float32. Everything else computes in float32;
// what lies between products is stored as halves where all who use it can read them:
//
//   product    reads halves. What it makes is a half where another product wants it so, or where only
//              regions, moves and followers read it; else float32, as gradients of weights and logits are
//   follower   (gradients of layers, column sums, pooling) reads halves where there are such
//   move       passes halves on where most of what it moves are, or few casts make them so
//   region     a node that will be part of a fused region (region_finder.h), where regions are made: reads
//              and stores halves by Casts beside it, which become part of the region, and computes in float32
//
// A value is narrowed once, by one Cast beside the node that makes it, however many read it. What is widened
// for a region is so for each reader, so that each region reads the half; equal ones that no region took are
// merged afterwards. Casts of variables are one node, braid.CastMany: a weight is cast once a step.
//
// precision_roles.h says what each node is, half_values.h chooses the values, and this file rewrites.
//
// It runs behind the passes that know patterns, so these see float32 graphs only. Variables, slots, feeds and
// fetches keep their types. No rule of rule.h: whether a value is a half is decided for the whole graph.
#include <fmt/format.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/ir/op.h"
#include "engine/ops/common/halves.h"
#include "engine/rewrite/half_values.h"
#include "engine/rewrite/passes.h"
#include "engine/rewrite/precision_roles.h"
#include "engine/rewrite/rewrite.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

class MixedPrecision {
 public:
  explicit MixedPrecision(Plan& plan)
      : plan_(plan),
        graph_(plan.program.graph),
        half_(plan.options.precision.half),
        order_(graph_.topological_order()),
        roles_(plan, order_),
        values_(plan, roles_, order_) {}

  void run() {
    // What a move reads is told by types, which change as nodes are rewritten.
    for (const NodeId id : order_)
      if (values_.converts(id)) read_as_halves_[id] = roles_.half_inputs(graph_.node(id));
    for (const NodeId id : order_) rewrite(id);
    for (ValueRef& fetch : plan_.fetches)
      if (values_.contains(fetch)) fetch = widened(fetch, graph_.node(fetch.node));
    join_casts_of_variables();
    say();
  }

 private:
  ValueRef add_cast(ValueRef value, DType from, DType to, const Node& near, const char* suffix) {
    Node cast;
    cast.op = &OpRegistry::global().require("Cast");
    cast.name = graph_.unique_name(graph_.node(value.node).name + suffix);
    cast.attrs = {{"SrcT", from}, {"DstT", to}};
    cast.inputs = {value};
    cast.stream = near.stream;
    cast.device = near.device;
    cast.colocate_with = near.colocate_with;
    cast.include_grad = near.include_grad;
    cast.forward_of = near.forward_of;
    return {graph_.add(std::move(cast)), 0};
  }

  /// The value as a half.
  ValueRef narrowed(ValueRef value, const Node& user) {
    if (values_.contains(value) && roles_.of(value.node) != PrecisionRole::Region) return value;
    const auto known = narrowed_.find(value);
    if (known != narrowed_.end()) return known->second;
    const Node& maker = graph_.node(value.node);
    const bool is_made =
        maker.op->role == OpRole::Ordinary && !roles_.is_known(maker) && !plan_.is_fed(maker);
    const Node near = is_made ? maker : user;
    const ValueRef made = add_cast(value, DType::Float32, half_, near, "/half");
    narrowed_.emplace(value, made);
    ++narrowing_;
    return made;
  }

  /// A value that is stored as a half, as float32 for `user`.
  ValueRef widened(ValueRef value, const Node& user) {
    const NodeId reader = roles_.of(user.id) == PrecisionRole::Region ? user.id : kNoNode;
    const auto known = widened_.find({value, reader});
    if (known != widened_.end()) return known->second;
    const Node near = user;
    const ValueRef made = add_cast(narrowed(value, near), half_, DType::Float32, near, "/float");
    widened_.emplace(std::pair{value, reader}, made);
    ++widening_;
    return made;
  }

  void rewrite(NodeId id) {
    const std::vector<ValueRef> inputs = graph_.node(id).inputs;
    std::set<int> as_halves;
    if (values_.converts(id)) {
      const Node& node = graph_.node(id);
      const std::vector<int>& listed_inputs = read_as_halves_.at(id);
      as_halves.insert(listed_inputs.begin(), listed_inputs.end());
      const HalfForm* form = half_form(*node.op);
      if (form && form->like_output >= 0 && values_.contains({id, 0})) as_halves.insert(form->like_output);
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (uses_shape_only(graph_.node(id), i)) continue;
      ValueRef now = inputs[i];
      if (as_halves.contains(static_cast<int>(i)))
        now = narrowed(inputs[i], graph_.node(id));
      else if (values_.contains(inputs[i]))
        now = widened(inputs[i], graph_.node(id));
      graph_.mutable_node(id).inputs[i] = now;
    }
    if (!values_.converts(id)) return;
    const bool moves = roles_.of(id) == PrecisionRole::Move && !half_form(*graph_.node(id).op);
    for (const int o : roles_.half_outputs(graph_.node(id))) {
      if (!values_.contains({id, o})) continue;
      if (moves)
        graph_.mutable_node(id).outputs[static_cast<std::size_t>(o)].dtype = half_;
      else
        set_half_output(graph_.mutable_node(id), o, half_);
    }
  }

  /// Reads of variables that nothing orders.
  void join_casts_of_variables() {
    std::map<std::string, std::vector<NodeId>> by_device;
    for (const auto& [value, cast] : narrowed_) {
      const Node& read = graph_.node(value.node);
      if (read.op->role == OpRole::Read && is_plain(plan_, read) && !roles_.is_kept(read))
        by_device[graph_.node(cast.node).device].push_back(cast.node);
    }
    for (const auto& [device, casts] : by_device) {
      if (casts.size() < 2) continue;
      Node many;
      many.op = &OpRegistry::global().require("braid.CastMany");
      many.name = graph_.unique_name("weights/half");
      many.attrs = {{"DstT", half_}};
      many.device = device;
      for (const NodeId cast : casts) many.inputs.push_back(graph_.node(cast).inputs[0]);
      const NodeId made = graph_.add(std::move(many));
      std::map<ValueRef, ValueRef> replaced;
      for (std::size_t c = 0; c < casts.size(); ++c) replaced[{casts[c], 0}] = {made, static_cast<int>(c)};
      graph_.replace_uses(replaced);
      for (const NodeId cast : casts) graph_.remove(cast);
      joined_ += casts.size();
    }
  }

  void say() {
    int kept = 0;
    std::string why;
    for (const auto& [reason, count] : roles_.kept_products()) {
      kept += count;
      why += fmt::format("; {} stay float32, {}", count, reason);
    }
    std::size_t stored = 0;
    for (const ValueRef value : values_.all()) stored += graph_.info(value).shape.is_static() ? 1 : 0;
    plan_.note(fmt::format(
        "{} of {} products run on {}; {} values are stored so; {} casts from float32 ({} of variables, in "
        "one node), {} back{}",
        roles_.products(), roles_.products() + kept, dtype_name(half_), stored, narrowing_, joined_,
        widening_, why));
  }

  Plan& plan_;
  Graph& graph_;
  const DType half_;
  const std::vector<NodeId> order_;
  PrecisionRoles roles_;
  const HalfValues values_;
  std::map<NodeId, std::vector<int>> read_as_halves_;  // inputs of nodes that convert
  std::map<ValueRef, ValueRef> narrowed_;
  std::map<std::pair<ValueRef, NodeId>, ValueRef> widened_;  // for a region's node, or for all others
  std::size_t narrowing_ = 0, widening_ = 0, joined_ = 0;
};

}  // namespace

void mix_precision(Plan& plan) {
  if (plan.options.precision.half == DType::Float32) return;
  MixedPrecision(plan).run();
}

void merge_casts(Plan& plan) {
  if (plan.options.precision.half == DType::Float32) return;
  static const Pattern cast{"Cast"};
  Graph& graph = plan.program.graph;
  using Key = std::tuple<ValueRef, DType, int, std::string>;
  const auto key = [&](const Node& node) -> std::optional<Key> {
    if (!is_inner(plan, node.id) || !is_half(graph.info(node.inputs[0]).dtype)) return std::nullopt;
    return Key{node.inputs[0], node.outputs[0].dtype, node.stream, node.device};
  };
  const auto keep_first = [&](const std::vector<NodeId>& casts) {
    std::map<ValueRef, ValueRef> replaced;
    for (const NodeId id : casts)
      if (id != casts[0]) {
        replaced[{id, 0}] = {casts[0], 0};
        take_place(plan, id, casts[0]);
      }
    graph.replace_uses(replaced);
    return casts[0];
  };
  join_groups(graph, graph.topological_order(), cast, key, keep_first);
}

}  // namespace braid
