// Sparse updates whose gradients are parts of one tensor, as those of columns are that were joined for a
// layer: they read the parts where they are.
//
//   SparseApplyOptimizer(w, slots..., i, SplitLike(axis, x, ...):k)
//     -> SparseApplyOptimizer(w, slots..., i, x), value_offsets
//
// Other readers get slices. Not where these would be a large share of what is split.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "engine/ops/optimizer/update_inputs.h"
#include "engine/rewrite/image_values.h"
#include "engine/rewrite/passes.h"
#include "engine/rewrite/region_parts.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

constexpr std::int64_t kLeastInPlace = 4;  // of what is read in place, by what is sliced

struct UpdateParts {
  std::map<NodeId, PartOf> of_updates;
  std::map<int, PartOf> sliced;  // by output
};

/// Columns of a matrix.
std::optional<PartOf> columns_of(const Rewrite& r, ValueRef value) {
  const auto part = part_of(r.plan, value);
  if (!part) return std::nullopt;
  const OutputInfo &whole = r.graph.info(part->whole), &info = r.graph.info(value);
  if (whole.shape.rank() != 2 || info.shape.rank() != 2 || whole.dtype != info.dtype ||
      whole.shape[0] != info.shape[0] || part->width != whole.shape[1])
    return std::nullopt;
  return part;
}

/// Whether the node is an update that reads this output as its values, and nothing else of the node.
bool updates_by(const Node& node, ValueRef value) {
  static const Pattern update{"braid.SparseApplyOptimizer"};
  if (!update.names(node) || node.attrs.has(kValueOffsets)) return false;
  const auto at = static_cast<std::size_t>(value_inputs(node, 2)[0]);
  return node.inputs[at] == value &&
         std::count_if(node.inputs.begin(), node.inputs.end(),
                       [&](ValueRef input) { return input.node == value.node; }) == 1;
}

std::optional<UpdateParts> find_parts(const Rewrite& r, const Match& match) {
  const NodeId id = match[0];
  if (!is_inner(r.plan, id) || r.users.is_awaited(id)) return std::nullopt;
  std::map<int, std::vector<NodeId>> readers;
  for (const NodeId user : std::set<NodeId>(r.users.of(id).begin(), r.users.of(id).end()))
    for (const ValueRef input : r.node(user).inputs)
      if (input.node == id) readers[input.output].push_back(user);
  UpdateParts found;
  std::int64_t in_place = 0, sliced = 0;
  for (const auto& [output, nodes] : readers) {
    const ValueRef value{id, output};
    const auto part = columns_of(r, value);
    if (!part) return std::nullopt;
    const bool all =
        std::all_of(nodes.begin(), nodes.end(), [&](NodeId node) { return updates_by(r.node(node), value); });
    (all ? in_place : sliced) += part->columns;
    if (!all) found.sliced.emplace(output, *part);
    for (const NodeId node : nodes)
      if (all) found.of_updates.emplace(node, *part);
  }
  if (in_place == 0 || in_place < kLeastInPlace * sliced) return std::nullopt;
  return found;
}

void read_in_place(Rewrite& r, const Match& match, const UpdateParts& parts) {
  const Node split = r.node(match[0]);  // a copy: nodes are added
  ImageValues values(r.plan);
  for (const auto& [output, part] : parts.sliced) {
    const Shape& shape = split.outputs[static_cast<std::size_t>(output)].shape;
    const ValueRef slice = values.add(
        split, "Slice",
        {part.whole, values.ints(split, {0, part.offset}), values.ints(split, {shape[0], shape[1]})}, {});
    replace_value(r.plan, {split.id, output}, slice);
  }
  for (const auto& [id, part] : parts.of_updates) {
    Node& update = r.graph.mutable_node(id);
    update.inputs[static_cast<std::size_t>(value_inputs(update, 2)[0])] = part.whole;
    update.attrs.set(kValueOffsets, std::vector<std::int64_t>{part.offset});
    take_place(r.plan, split.id, part.whole.node);
  }
}

}  // namespace

void read_update_parts(Plan& plan) {
  run_rules(plan, {.rules = {{"parts that updates read",
                              {"braid.SplitLike", "Split", "SplitV"},
                              find_parts,
                              read_in_place}},
                   .text = [](const std::vector<int>& applied) {
                     return "parts of " + std::to_string(applied[0]) + " tensors are read by updates";
                   }});
}

}  // namespace braid
