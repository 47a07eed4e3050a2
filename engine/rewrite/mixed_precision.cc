// Mixed precision: where PrecisionOptions::half says so, products (OpDef that takes_halves() as
// HalfKind::Product) read float16 or bfloat16 and add up in float32. Everything else computes in float32;
// what lies between products is stored as halves where all who use it can read them:
//
//   product    reads halves. What it makes is a half where another product wants it so, or where only
//   regions,
//              moves and followers read it; else float32, as gradients of weights and logits are
//   follower   (gradients of layers, column sums) reads halves where there are such
//   move       passes halves on where most of what it moves are, or few casts make them so
//   region     a node that will be part of a fused region (region_finder.h), where regions are made: reads
//              and stores halves by Casts beside it, which become part of the region, and computes in float32
//
// A value is narrowed once, by one Cast beside the node that makes it, however many read it. What is widened
// for a region is so for each reader, so that each region reads the half; equal ones that no region took are
// merged afterwards. Casts of variables are one node, braid.CastMany: a weight is cast once a step.
//
// It runs behind the passes that know patterns, so these see float32 graphs only. Variables, slots, feeds and
// fetches keep their types. No rule of rule.h: whether a value is a half is decided for the whole graph.
#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/ir/device_name.h"
#include "engine/ir/op.h"
#include "engine/ops/common/halves.h"
#include "engine/rewrite/passes.h"
#include "engine/rewrite/region_program.h"
#include "engine/rewrite/rewrite.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

enum class Role { Fixed, Product, Follower, Move, Region };

/// Smaller values are not worth a cast; narrow ones are logits, and what losses are made of.
constexpr std::int64_t kLeastElements = 4096, kLeastColumns = 8;
constexpr int kMostCastsOfMove = 2;

class MixedPrecision {
 public:
  explicit MixedPrecision(Plan& plan)
      : plan_(plan),
        graph_(plan.program.graph),
        half_(plan.options.precision.half),
        on_device_(plan.options.domain == Domain::Device),
        steps_(graph_),
        order_(graph_.topological_order()) {
    const std::string& pattern = plan.options.precision.keep_nodes;
    if (pattern.empty()) return;
    keep_ = std::make_unique<RE2>(pattern, RE2::Quiet);
    if (!keep_->ok())
      throw InvalidArgument(fmt::format("mixed_precision.keep_nodes: '{}' is no regular expression: {}",
                                        pattern, keep_->error()));
  }

  void run() {
    roles_.assign(static_cast<std::size_t>(graph_.size()), Role::Fixed);
    converts_.assign(roles_.size(), false);
    for (const NodeId id : order_) roles_[index(id)] = role_of(graph_.node(id));
    find_uses();
    for (const NodeId id : order_) find_able(graph_.node(id));
    for (auto at = order_.rbegin(); at != order_.rend(); ++at) find_wanted(graph_.node(*at));
    for (const NodeId id : order_) decide(graph_.node(id));
    // What a move reads is told by types, which change as nodes are rewritten.
    for (const NodeId id : order_)
      if (converts_[index(id)]) read_as_halves_[id] = half_inputs(graph_.node(id));
    for (const NodeId id : order_) rewrite(id);
    for (ValueRef& fetch : plan_.fetches)
      if (is_stored_half(fetch)) fetch = widened(fetch, graph_.node(fetch.node));
    join_casts_of_variables();
    say();
  }

 private:
  struct Use {
    NodeId node;
    int input;
  };

  static std::size_t index(NodeId id) { return static_cast<std::size_t>(id); }
  Role role(NodeId id) const { return roles_[index(id)]; }
  bool is_stored_half(ValueRef value) const { return halves_.contains(value); }
  bool is_wanted(ValueRef value) const { return wanted_.contains(value); }

  // ---------------------------------------------------------------------------------------------- roles

  bool is_kept(const Node& node) const {
    const auto& ops = plan_.options.precision.keep_ops;
    return std::find(ops.begin(), ops.end(), node.op->name) != ops.end() ||
           (keep_ && RE2::PartialMatch(node.name, *keep_));
  }

  static std::vector<int> listed(const std::vector<int>& list, std::size_t all) {
    if (list != std::vector<int>{-1}) return list;
    std::vector<int> every;
    for (std::size_t i = 0; i < all; ++i) every.push_back(static_cast<int>(i));
    return every;
  }
  std::vector<int> half_inputs(const Node& node) const {
    if (role(node.id) == Role::Move) return float_inputs(node);
    return listed(half_form(*node.op)->inputs, node.inputs.size());
  }
  std::vector<int> half_outputs(const Node& node) const {
    if (role(node.id) == Role::Move || role(node.id) == Role::Region) {
      std::vector<int> floats;
      for (std::size_t o = 0; o < node.outputs.size(); ++o)
        if (node.outputs[o].dtype == DType::Float32) floats.push_back(static_cast<int>(o));
      return floats;
    }
    return listed(half_form(*node.op)->outputs, node.outputs.size());
  }
  std::vector<int> float_inputs(const Node& node) const {
    std::vector<int> floats;
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (!uses_shape_only(node, i) && graph_.info(node.inputs[i]).dtype == DType::Float32)
        floats.push_back(static_cast<int>(i));
    return floats;
  }

  bool is_static_float(const OutputInfo& info) const {
    return info.dtype == DType::Float32 && info.shape.is_static();
  }

  /// Whether the node has a kernel, where it will run, for halves in these inputs.
  bool has_kernel(const Node& node, const std::vector<int>& inputs, bool own_kernel) const {
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

  bool is_known(const Node& node) const {
    for (int o = 0; o < static_cast<int>(node.outputs.size()); ++o)
      if (graph_.known_value({node.id, o})) return true;
    return false;
  }

  Role role_of(const Node& node) {
    if (node.removed || plan_.is_fed(node) || is_known(node)) return Role::Fixed;
    for (int o = 0; o < static_cast<int>(node.outputs.size()); ++o)
      if (plan_.feed_of({node.id, o}) >= 0) return Role::Fixed;
    const HalfForm* form = half_form(*node.op);
    const bool is_product = form && form->kind == HalfKind::Product;
    if (is_product && takes_floats(node, *form)) {
      if (is_kept(node)) return stays(node, "as the job asks");
      if (!has_kernel(node, listed(form->inputs, node.inputs.size()), true))
        return stays(node, "no faster kernel for halves");
      ++products_;
      return Role::Product;
    }
    if (is_kept(node)) return Role::Fixed;
    if (is_region_node(node)) return Role::Region;
    if (form && !is_product && takes_floats(node, *form) &&
        has_kernel(node, listed(form->inputs, node.inputs.size()), true))
      return Role::Follower;
    return is_move(node) ? Role::Move : Role::Fixed;
  }

  Role stays(const Node& node, const char* why) {
    kept_[why + std::string(": ") + std::string(node.op->name)] += 1;
    return Role::Fixed;
  }

  bool takes_floats(const Node& node, const HalfForm& form) const {
    for (const int i : listed(form.inputs, node.inputs.size()))
      if (!is_static_float(graph_.info(node.inputs[static_cast<std::size_t>(i)]))) return false;
    for (const int o : listed(form.outputs, node.outputs.size()))
      if (!is_static_float(node.outputs[static_cast<std::size_t>(o)])) return false;
    return true;
  }

  bool is_region_node(const Node& node) {
    if (!plan_.options.fusion || !is_plain(plan_, node) || node.op->stateful || node.op->side_effect ||
        node.outputs.empty())
      return false;
    if (on_device_ && (!node.op->cuda || !suits_device(plan_, node))) return false;
    return steps_.of(node.id) != nullptr;
  }

  bool is_move(const Node& node) const {
    const OpDef& op = *node.op;
    if (op.traits.elements != Elements::Moves || op.traits.widening.rule != Widening::Rule::None ||
        op.gathers.table >= 0 || op.stateful || op.side_effect || op.lane != Lane::Compute ||
        (op.role != OpRole::Ordinary && op.role != OpRole::Identity))
      return false;
    const std::vector<int> inputs = float_inputs(node);
    for (const ValueRef input : node.inputs)
      if (graph_.info(input).dtype == DType::Resource) return false;
    for (const OutputInfo& output : node.outputs)
      if (!is_static_float(output)) return false;
    return !inputs.empty() && has_kernel(node, inputs, false);
  }

  // --------------------------------------------------------------------------------- what is wanted, and
  // able

  void find_uses() {
    for (const NodeId id : order_) {
      const Node& node = graph_.node(id);
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        if (!uses_shape_only(node, i)) uses_[node.inputs[i]].push_back({id, static_cast<int>(i)});
    }
    fetched_.insert(plan_.fetches.begin(), plan_.fetches.end());
  }

  static bool is_large(const OutputInfo& info) {
    const Shape& shape = info.shape;
    return shape.is_static() && shape.rank() > 0 && shape.elements() >= kLeastElements &&
           shape[shape.rank() - 1] >= kLeastColumns;
  }

  /// Logits and their gradients, whose sums may cancel.
  static bool is_narrow(const OutputInfo& info) {
    return info.shape.rank() == 2 && info.shape[1] < kLeastColumns;
  }

  double bytes(ValueRef value) const { return static_cast<double>(graph_.info(value).shape.elements()); }

  /// Whether its values can be made as halves without a Cast of their own.
  void find_able(const Node& node) {
    switch (role(node.id)) {
      case Role::Product:
      case Role::Follower:
      case Role::Region:
        for (const int o : half_outputs(node)) able_.insert({node.id, o});
        return;
      case Role::Move: {
        double from_halves = 0, all = 0;
        int casts = 0;  // of what is no half; fewer bytes than one of what they are moved to, but launches
        for (const int i : half_inputs(node)) {
          const ValueRef input = node.inputs[static_cast<std::size_t>(i)];
          all += bytes(input);
          if (able_.contains(input))
            from_halves += bytes(input);
          else
            ++casts;
        }
        if ((2 * from_halves < all && casts > kMostCastsOfMove) || all == 0) return;
        for (const int o : half_outputs(node)) able_.insert({node.id, o});
        return;
      }
      case Role::Fixed:
        return;
    }
  }

  /// Whether all who use it read halves, or pass them on, at no cost.
  bool is_friendly(ValueRef value) const {
    const auto uses = uses_.find(value);
    if (uses == uses_.end() || fetched_.contains(value)) return false;
    return std::all_of(uses->second.begin(), uses->second.end(), [&](const Use& use) {
      const Node& user = graph_.node(use.node);
      switch (role(use.node)) {
        case Role::Product:
        case Role::Follower: {
          const std::vector<int> inputs = half_inputs(user);
          if (std::find(inputs.begin(), inputs.end(), use.input) == inputs.end()) return false;
          return role(use.node) == Role::Product || half_outputs(user).empty() || converts_[index(use.node)];
        }
        case Role::Region:
          return true;
        case Role::Move:
          return friendly_moves_.contains(use.node);
        case Role::Fixed:
          return false;
      }
      return false;
    });
  }

  void want_inputs(const Node& node) {
    for (const int i : half_inputs(node)) wanted_.insert(node.inputs[static_cast<std::size_t>(i)]);
  }

  /// In reverse order, so that all uses have said what they want.
  void find_wanted(const Node& node) {
    switch (role(node.id)) {
      case Role::Product:
        return want_inputs(node);
      case Role::Follower: {
        const std::vector<int> outputs = half_outputs(node);
        converts_[index(node.id)] = std::any_of(outputs.begin(), outputs.end(), [&](int o) {
          return is_wanted({node.id, o});
        });
        if (converts_[index(node.id)]) want_inputs(node);
        return;
      }
      case Role::Move: {
        double wanted = 0, all = 0;
        bool friendly = true;
        for (const int o : half_outputs(node)) {
          const ValueRef value{node.id, o};
          all += bytes(value);
          if (is_wanted(value)) wanted += bytes(value);
          friendly = friendly && is_friendly(value);
        }
        if (friendly) friendly_moves_.insert(node.id);
        const bool narrow = std::any_of(node.outputs.begin(), node.outputs.end(), is_narrow);
        converts_[index(node.id)] =
            wanted > 0 && 2 * wanted >= all && able_.contains({node.id, 0}) && !narrow;
        if (converts_[index(node.id)]) {
          friendly_moves_.insert(node.id);
          want_inputs(node);
        }
        return;
      }
      case Role::Region:
      case Role::Fixed:
        return;
    }
  }

  // ------------------------------------------------------------------------------------------- decisions

  void decide(const Node& node) {
    const auto all_half = [&](const std::vector<int>& inputs) {
      return !inputs.empty() && std::all_of(inputs.begin(), inputs.end(), [&](int i) {
        return is_stored_half(node.inputs[static_cast<std::size_t>(i)]);
      });
    };
    switch (role(node.id)) {
      case Role::Product:
        converts_[index(node.id)] = true;
        for (const int o : half_outputs(node)) {
          const ValueRef value{node.id, o};
          if (half_form(*node.op)->whole || is_wanted(value) ||
              (is_large(node.outputs[static_cast<std::size_t>(o)]) && is_friendly(value)))
            halves_.insert(value);
        }
        return;
      case Role::Follower:
        if (half_outputs(node).empty()) converts_[index(node.id)] = all_half(half_inputs(node));
        if (converts_[index(node.id)])
          for (const int o : half_outputs(node)) halves_.insert({node.id, o});
        return;
      case Role::Move: {
        const bool passes_on = all_half(half_inputs(node)) && friendly_moves_.contains(node.id);
        if (!converts_[index(node.id)] && !passes_on) return;
        converts_[index(node.id)] = true;
        for (const int o : half_outputs(node)) halves_.insert({node.id, o});
        return;
      }
      case Role::Region:
        for (const int o : half_outputs(node)) {
          const ValueRef value{node.id, o};
          const OutputInfo& info = node.outputs[static_cast<std::size_t>(o)];
          if (!is_large(info)) continue;
          if (is_wanted(value) || (is_friendly(value) && is_of_halves(node, info.shape)))
            halves_.insert(value);
        }
        return;
      case Role::Fixed:
        return;
    }
  }

  /// Whether what the node computes `shape` of is halves, broadcast vectors apart.
  bool is_of_halves(const Node& node, const Shape& shape) const {
    bool any = false;
    for (const int i : float_inputs(node)) {
      const ValueRef input = node.inputs[static_cast<std::size_t>(i)];
      if (2 * graph_.info(input).shape.elements() < shape.elements()) continue;
      if (!is_stored_half(input)) return false;
      any = true;
    }
    return any;
  }

  // --------------------------------------------------------------------------------------------- rewriting

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
    if (is_stored_half(value) && role(value.node) != Role::Region) return value;
    const auto known = narrowed_.find(value);
    if (known != narrowed_.end()) return known->second;
    const Node& maker = graph_.node(value.node);
    const bool is_made = maker.op->role == OpRole::Ordinary && !is_known(maker) && !plan_.is_fed(maker);
    const Node near = is_made ? maker : user;
    const ValueRef made = add_cast(value, DType::Float32, half_, near, "/half");
    narrowed_.emplace(value, made);
    ++narrowing_;
    return made;
  }

  /// A value that is stored as a half, as float32 for `user`.
  ValueRef widened(ValueRef value, const Node& user) {
    const NodeId reader = index(user.id) < roles_.size() && role(user.id) == Role::Region ? user.id : kNoNode;
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
    if (converts_[index(id)]) {
      const Node& node = graph_.node(id);
      const std::vector<int>& listed_inputs = read_as_halves_.at(id);
      as_halves.insert(listed_inputs.begin(), listed_inputs.end());
      const HalfForm* form = half_form(*node.op);
      if (form && form->like_output >= 0 && is_stored_half({id, 0})) as_halves.insert(form->like_output);
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (uses_shape_only(graph_.node(id), i)) continue;
      ValueRef now = inputs[i];
      if (as_halves.contains(static_cast<int>(i)))
        now = narrowed(inputs[i], graph_.node(id));
      else if (is_stored_half(inputs[i]))
        now = widened(inputs[i], graph_.node(id));
      graph_.mutable_node(id).inputs[i] = now;
    }
    if (!converts_[index(id)]) return;
    const bool moves = role(id) == Role::Move;
    for (const int o : half_outputs(graph_.node(id))) {
      if (!is_stored_half({id, o})) continue;
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
      if (read.op->role == OpRole::Read && is_plain(plan_, read) && !is_kept(read))
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
    std::size_t kept = 0;
    std::string why;
    for (const auto& [reason, count] : kept_) {
      kept += static_cast<std::size_t>(count);
      why += fmt::format("; {} stay float32, {}", count, reason);
    }
    std::size_t stored = 0;
    for (const ValueRef value : halves_) stored += graph_.info(value).shape.is_static() ? 1 : 0;
    plan_.note(fmt::format(
        "{} of {} products run on {}; {} values are stored so; {} casts from float32 ({} of variables, in "
        "one "
        "node), {} back{}",
        products_, products_ + kept, dtype_name(half_), stored, narrowing_, joined_, widening_, why));
  }

  Plan& plan_;
  Graph& graph_;
  const DType half_;
  const bool on_device_;
  NodeStepsCache steps_;
  const std::vector<NodeId> order_;
  std::unique_ptr<RE2> keep_;
  std::vector<Role> roles_;     // by node
  std::vector<bool> converts_;  // by node: it reads halves
  std::map<ValueRef, std::vector<Use>> uses_;
  std::set<ValueRef> fetched_, able_, wanted_;
  std::set<ValueRef> halves_;  // values that are stored as halves
  std::set<NodeId> friendly_moves_;
  std::map<NodeId, std::vector<int>> read_as_halves_;  // inputs of nodes that convert
  std::map<ValueRef, ValueRef> narrowed_;
  std::map<std::pair<ValueRef, NodeId>, ValueRef> widened_;  // for a region's node, or for all others
  std::map<std::string, int> kept_;                          // products, by reason
  std::size_t products_ = 0, narrowing_ = 0, widening_ = 0, joined_ = 0;
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
  std::map<std::tuple<ValueRef, DType, int, std::string>, NodeId> known;
  std::map<ValueRef, ValueRef> replaced;
  for (const NodeId id : graph.topological_order()) {
    const Node& node = graph.node(id);
    if (!cast.names(node) || node.removed || !is_inner(plan, id) ||
        !is_half(graph.info(node.inputs[0]).dtype))
      continue;
    const auto [at, is_new] =
        known.try_emplace({node.inputs[0], node.outputs[0].dtype, node.stream, node.device}, id);
    if (is_new) continue;
    replaced[{id, 0}] = {at->second, 0};
    take_place(plan, id, at->second);
  }
  if (replaced.empty()) return;
  graph.replace_uses(replaced);
  for (const auto& [from, to] : replaced) graph.remove(from.node);
}

}  // namespace braid
