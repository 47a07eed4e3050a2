#include "engine/rewrite/half_values.h"

#include <algorithm>

#include "engine/ir/op.h"
#include "engine/ops/common/halves.h"
#include "engine/rewrite/rewrite.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

/// Smaller values are not worth a cast; narrow ones are logits, and what losses are made of.
constexpr std::int64_t kLeastElements = 4096, kLeastColumns = 8;
constexpr int kMostCastsOfMove = 2;

bool is_large(const OutputInfo& info) {
  const Shape& shape = info.shape;
  return shape.is_static() && shape.rank() > 0 && shape.elements() >= kLeastElements &&
         shape[shape.rank() - 1] >= kLeastColumns;
}

/// Followers that take or average a few elements, or carry them to other processes: they pass halves on, as
/// moves do, whether somebody wants them or all who read them can.
bool passes_on(const Node& node) {
  static const Pattern pooling{"AvgPool",
                               "AvgPoolGrad",
                               "braid.GatherGrad",
                               "braid.MaxPoolPlaces",
                               "braid.MaxPoolPlaces3D",
                               "braid.MaxPoolPlacesGrad",
                               "braid.MaxPoolPlacesGrad3D"};
  return pooling.names(node) || node.op->lane == Lane::Comm;
}

/// Logits and their gradients, whose sums may cancel.
bool is_narrow(const OutputInfo& info) { return info.shape.rank() == 2 && info.shape[1] < kLeastColumns; }

}  // namespace

HalfValues::HalfValues(const Plan& plan, const PrecisionRoles& roles, const std::vector<NodeId>& order)
    : plan_(plan), graph_(plan.program.graph), roles_(roles) {
  find_uses(order);
  for (const NodeId id : order) find_able(graph_.node(id));
  for (auto at = order.rbegin(); at != order.rend(); ++at) find_wanted(graph_.node(*at));
  for (const NodeId id : order) decide(graph_.node(id));
}

double HalfValues::elements(ValueRef value) const {
  return static_cast<double>(graph_.info(value).shape.elements());
}

void HalfValues::find_uses(const std::vector<NodeId>& order) {
  for (const NodeId id : order) {
    const Node& node = graph_.node(id);
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (!uses_shape_only(node, i)) uses_[node.inputs[i]].push_back({id, static_cast<int>(i)});
  }
  fetched_.insert(plan_.fetches.begin(), plan_.fetches.end());
}

/// Whether its values can be made as halves without a Cast of their own.
void HalfValues::find_able(const Node& node) {
  switch (roles_.of(node.id)) {
    case PrecisionRole::Product:
    case PrecisionRole::Follower:
    case PrecisionRole::Region:
      for (const int o : roles_.half_outputs(node)) able_.insert({node.id, o});
      return;
    case PrecisionRole::Move: {
      double from_halves = 0, all = 0;
      int casts = 0;  // of what is no half; fewer bytes than one of what they are moved to, but launches
      for (const int i : roles_.half_inputs(node)) {
        const ValueRef input = node.inputs[static_cast<std::size_t>(i)];
        all += elements(input);
        if (able_.contains(input))
          from_halves += elements(input);
        else
          ++casts;
      }
      // A gather of few rows would have all of its table cast.
      const bool few = node.op->gathers.table >= 0 && elements({node.id, 0}) < all;
      if ((2 * from_halves < all && casts > (few ? 0 : kMostCastsOfMove)) || all == 0) return;
      for (const int o : roles_.half_outputs(node)) able_.insert({node.id, o});
      return;
    }
    case PrecisionRole::Fixed:
      return;
  }
}

/// Whether all who use it read halves, or pass them on, at no cost.
bool HalfValues::is_friendly(ValueRef value) const {
  const auto uses = uses_.find(value);
  if (uses == uses_.end() || fetched_.contains(value)) return false;
  return std::all_of(uses->second.begin(), uses->second.end(), [&](const Use& use) {
    const Node& user = graph_.node(use.node);
    switch (roles_.of(use.node)) {
      case PrecisionRole::Product:
      case PrecisionRole::Follower: {
        const std::vector<int> inputs = roles_.half_inputs(user);
        if (std::find(inputs.begin(), inputs.end(), use.input) == inputs.end()) return false;
        return roles_.of(use.node) == PrecisionRole::Product || roles_.half_outputs(user).empty() ||
               converts_.contains(use.node) || friendly_moves_.contains(use.node);
      }
      case PrecisionRole::Region:
        return true;
      case PrecisionRole::Move:
        return friendly_moves_.contains(use.node);
      case PrecisionRole::Fixed:
        return false;
    }
    return false;
  });
}

void HalfValues::want_inputs(const Node& node) {
  for (const int i : roles_.half_inputs(node)) wanted_.insert(node.inputs[static_cast<std::size_t>(i)]);
}

/// In reverse order, so that all uses have said what they want.
void HalfValues::find_wanted(const Node& node) {
  switch (roles_.of(node.id)) {
    case PrecisionRole::Product:
      return want_inputs(node);
    case PrecisionRole::Follower: {
      const std::vector<int> outputs = roles_.half_outputs(node);
      // What an exchange has for others is read by nobody here.
      const auto is_used = [&](int o) {
        return uses_.contains({node.id, o}) || fetched_.contains({node.id, o});
      };
      const auto minds = [&](int o) { return is_used(o) && !is_friendly({node.id, o}); };
      if (passes_on(node) && std::any_of(outputs.begin(), outputs.end(), is_used) &&
          std::none_of(outputs.begin(), outputs.end(), minds))
        friendly_moves_.insert(node.id);
      if (std::none_of(outputs.begin(), outputs.end(), [&](int o) { return is_wanted({node.id, o}); }))
        return;
      converts_.insert(node.id);
      want_inputs(node);
      return;
    }
    case PrecisionRole::Move:
      return find_wanted_move(node);
    case PrecisionRole::Region:
    case PrecisionRole::Fixed:
      return;
  }
}

void HalfValues::find_wanted_move(const Node& node) {
  double wanted = 0, all = 0;
  bool friendly = true;
  for (const int o : roles_.half_outputs(node)) {
    const ValueRef value{node.id, o};
    all += elements(value);
    if (is_wanted(value)) wanted += elements(value);
    friendly = friendly && is_friendly(value);
  }
  if (friendly) friendly_moves_.insert(node.id);
  const bool narrow = std::any_of(node.outputs.begin(), node.outputs.end(), is_narrow);
  if (wanted == 0 || 2 * wanted < all || !able_.contains({node.id, 0}) || narrow) return;
  converts_.insert(node.id);
  friendly_moves_.insert(node.id);
  want_inputs(node);
}

bool HalfValues::are_all_halves(const Node& node, const std::vector<int>& inputs) const {
  return !inputs.empty() && std::all_of(inputs.begin(), inputs.end(), [&](int i) {
    return contains(node.inputs[static_cast<std::size_t>(i)]);
  });
}

void HalfValues::decide(const Node& node) {
  switch (roles_.of(node.id)) {
    case PrecisionRole::Product:
      converts_.insert(node.id);
      for (const int o : roles_.half_outputs(node)) {
        const ValueRef value{node.id, o};
        if (half_form(*node.op)->whole || is_wanted(value) ||
            (is_large(node.outputs[static_cast<std::size_t>(o)]) && is_friendly(value)))
          halves_.insert(value);
      }
      return;
    case PrecisionRole::Follower:
      if ((roles_.half_outputs(node).empty() || friendly_moves_.contains(node.id)) &&
          are_all_halves(node, roles_.half_inputs(node)))
        converts_.insert(node.id);
      if (converts_.contains(node.id))
        for (const int o : roles_.half_outputs(node)) halves_.insert({node.id, o});
      return;
    case PrecisionRole::Move: {
      const bool passes_on =
          are_all_halves(node, roles_.half_inputs(node)) && friendly_moves_.contains(node.id);
      if (!converts_.contains(node.id) && !passes_on) return;
      converts_.insert(node.id);
      for (const int o : roles_.half_outputs(node)) halves_.insert({node.id, o});
      return;
    }
    case PrecisionRole::Region:
      for (const int o : roles_.half_outputs(node)) {
        const ValueRef value{node.id, o};
        const OutputInfo& info = node.outputs[static_cast<std::size_t>(o)];
        if (!is_large(info)) continue;
        if (is_wanted(value) || (is_friendly(value) && is_of_halves(node, info.shape))) halves_.insert(value);
      }
      return;
    case PrecisionRole::Fixed:
      return;
  }
}

/// Whether what the node computes `shape` of is halves, broadcast vectors apart.
bool HalfValues::is_of_halves(const Node& node, const Shape& shape) const {
  bool any = false;
  for (const int i : roles_.float_inputs(node)) {
    const ValueRef input = node.inputs[static_cast<std::size_t>(i)];
    if (2 * graph_.info(input).shape.elements() < shape.elements()) continue;
    if (!contains(input)) return false;
    any = true;
  }
  return any;
}

}  // namespace braid
