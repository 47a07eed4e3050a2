#include "engine/rewrite/unit_transposes.h"

#include <fmt/format.h>

#include <utility>

#include "engine/ir/tensor.h"
#include "engine/rewrite/reshape_node.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

bool keeps_order(const Rewrite& r, const Match& match) {
  const Node& node = r.node(match[0]);
  const Tensor* order = r.graph.known_value(node.inputs[1]);
  const Shape& from = r.graph.info(node.inputs[0]).shape;
  if (!order || !from.is_static() || !is_plain(r.plan, node)) return false;
  std::int64_t last = -1;
  for (const std::int64_t axis : tensor_to_int64s(*order)) {
    const std::int64_t at = axis < 0 ? axis + from.rank() : axis;
    if (from[static_cast<int>(at)] == 1) continue;
    if (at < last) return false;
    last = at;
  }
  return true;
}

/// Whether a reduction of floats is along axes of one element each.
bool reduces_nothing(const Rewrite& r, const Match& match) {
  const Node& node = r.node(match[0]);
  if (!is_plain(r.plan, node)) return false;
  const OutputInfo &from = r.graph.info(node.inputs[0]), &to = node.outputs[0];
  return from.shape.is_static() && to.shape.is_static() && from.dtype == to.dtype &&
         is_floating(from.dtype) && from.shape.elements() == to.shape.elements() && from.shape.elements() > 0;
}

void make_view(Rewrite& r, const Match& match) {
  const Node old = r.node(match[0]);
  Node view = reshape_node(r.graph, old, old.inputs[0], old.outputs[0].shape);
  Node& node = r.graph.mutable_node(match[0]);
  node.op = view.op;
  node.attrs = std::move(view.attrs);
  node.inputs = std::move(view.inputs);
}

}  // namespace

void view_unit_transposes(Plan& plan) {
  run_rules(plan, {.rules = {{"view", {"Transpose"}, keeps_order, make_view},
                             {"value", {"Sum", "Mean", "Max", "Min", "Prod"}, reduces_nothing, make_view}},
                   .text = [](const std::vector<int>& applied) {
                     return fmt::format("{} transpositions move no elements, {} reductions are of one each",
                                        applied[0], applied[1]);
                   }});
}

}  // namespace braid
