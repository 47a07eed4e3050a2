// On a device: the gradient of a gather of few rows is zeros almost everywhere, and what it is added to is
// read and written as a whole for its sake:
//
//   AddN(a, b, GatherGrad(dy, indices, like))   -> AddRows(AddN(a, b), indices, dy)
//   AddN(a, SlicesToDense(indices, dy, like))   -> AddRows(a, indices, dy)
//
// The last token of each sequence, a row for each candidate, some rows of a table that is also a factor: none
// of them costs more than its rows then. Where the sum is stored as halves, the few rows are rounded once
// more. Left alone are gathers of more than an eighth of the rows, whose gradients fill the sum, other axes,
// and values that somebody else reads, too.
#include <algorithm>
#include <optional>

#include "engine/graph/passes.h"
#include "engine/rewrite/passes.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

constexpr std::int64_t kLeastShare = 8;  // rows of the sum for one that is added

/// A term of a sum that is the rows at `indices`, and zeros.
struct FewRows {
  ValueRef indices, rows;
};

std::optional<FewRows> few_rows(const Rewrite& r, const Node& sum, ValueRef term) {
  static const Pattern of_gather{"braid.GatherGrad"}, of_slices{"braid.SlicesToDense"};
  const Node& node = r.node(term.node);
  const bool gathers = of_gather.names(node);
  if ((!gathers && !of_slices.names(node)) || !r.is_for_one(node.id) || !is_plain(r.plan, node) ||
      !together(node, sum) || node.attrs.get("skip_negative", false))
    return std::nullopt;
  if (gathers) {
    const Tensor* axis = r.graph.known_value(node.inputs[3]);
    if (!axis || tensor_to_int64s(*axis)[0] != 0) return std::nullopt;
  }
  const FewRows found{node.inputs[gathers ? 1 : 0], node.inputs[gathers ? 0 : 1]};
  const Shape &all = node.outputs[0].shape, &indices = r.graph.info(found.indices).shape;
  if (!all.is_static() || all.rank() < 1 || !indices.is_static() || indices.rank() != 1 ||
      indices.elements() * kLeastShare > all[0])
    return std::nullopt;
  return found;
}

/// Which term of a sum it is.
struct FoundTerm {
  std::size_t place;
  FewRows rows;
};

std::optional<FoundTerm> find_few_rows(const Rewrite& r, const Match& match) {
  const Node& sum = r.node(match[0]);
  if (!is_plain(r.plan, sum) || sum.inputs.size() < 2) return std::nullopt;
  for (std::size_t i = sum.inputs.size(); i-- > 0;) {
    const auto rows = few_rows(r, sum, sum.inputs[i]);
    if (!rows || r.graph.info(sum.inputs[i]).shape != sum.outputs[0].shape) continue;
    // What is left is changed in place: of two terms the other one must be nobody else's.
    if (sum.inputs.size() == 2) {
      const ValueRef rest = sum.inputs[1 - i];
      if (!r.users.is_only_reader(sum.id, rest) || !is_plain(r.plan, r.node(rest.node)) ||
          is_fetched(r.plan, rest.node) || r.node(rest.node).op->role != OpRole::Ordinary ||
          r.graph.info(rest).shape != sum.outputs[0].shape)
        return std::nullopt;
    }
    return FoundTerm{i, *rows};
  }
  return std::nullopt;
}

void add_rows(Rewrite& r, const Match& match, const FoundTerm& found) {
  const Node sum = r.node(match[0]);
  ValueRef rest = sum.inputs[found.place == 0 ? 1 : 0];
  if (sum.inputs.size() > 2) {
    Node fewer = sum;
    fewer.inputs.erase(fewer.inputs.begin() + static_cast<std::ptrdiff_t>(found.place));
    if (fewer.attrs.has("N")) fewer.attrs.set("N", static_cast<std::int64_t>(fewer.inputs.size()));
    rest = {add_node(r.graph, std::move(fewer), sum.name + "/rest"), 0};
  }
  Node added = sum;
  added.op = &OpRegistry::global().require("braid.AddRows");
  added.attrs = {};
  added.inputs = {rest, found.rows.indices, found.rows.rows};
  replace(r.plan, match[0], std::move(added), "/rows");
}

bool is_for_device(const Rewrite& r, const Match& match, const FoundTerm& found) {
  const Node& sum = r.node(match[0]);
  Node added = sum;
  added.op = &OpRegistry::global().require("braid.AddRows");
  added.inputs = {sum.inputs[found.place == 0 ? 1 : 0], found.rows.indices, found.rows.rows};
  return suits_device(r.plan, added);
}

}  // namespace

void add_few_rows(Plan& plan) {
  const auto guard = [](const Rewrite& r, const Match& match) -> std::optional<FoundTerm> {
    auto found = find_few_rows(r, match);
    if (found && !is_for_device(r, match, *found)) found.reset();
    return found;
  };
  const Rule rule("gradients of few rows", {"AddN", "AddV2", "Add"}, guard, add_rows);
  int applied = 0;
  for (int now = -1; now != 0; applied += now) {  // a sum of several such terms is rewritten once for each
    Rewrite rewrite(plan);
    now = apply_rules(rewrite, {rule}, plan.program.graph.topological_order())[0];
    if (now > 0) prune(plan, true);
  }
  if (applied > 0) plan.note(std::to_string(applied) + " gradients of few rows are added in place");
}

}  // namespace braid
