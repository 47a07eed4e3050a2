#include "engine/rewrite/narrow_splits.h"

#include <algorithm>
#include <string>
#include <vector>

#include "engine/rewrite/image_values.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

/// By output: whether somebody reads it. REQUIRES: nothing of the node is fetched.
std::vector<bool> used_outputs(const Rewrite& r, const Node& node) {
  std::vector<bool> used(node.outputs.size(), false);
  for (const NodeId user : r.users.of(node.id))
    for (const ValueRef input : r.node(user).inputs)
      if (input.node == node.id) used[static_cast<std::size_t>(input.output)] = true;
  return used;
}

bool narrow(Rewrite& r, ImageValues& values, const Match& match) {
  static const Pattern sized{"SplitV"};
  const Node node = r.node(match[0]);  // nodes are added
  const bool by_sizes = sized.names(node);
  const ValueRef whole = node.inputs[by_sizes ? 0 : 1];
  const auto known = values.known(node.inputs[by_sizes ? 2 : 0]);
  const Shape from = values.shape(whole);
  if (!is_inner(r.plan, node.id) || r.users.is_awaited(node.id) || !known || known->size() != 1 ||
      !from.is_static())
    return false;
  const std::vector<bool> used = used_outputs(r, node);
  for (const OutputInfo& output : node.outputs)
    if (!output.shape.is_static()) return false;
  const auto count = std::count(used.begin(), used.end(), true);
  if (count == 0 || count == std::ssize(used)) return false;
  const std::int64_t said = (*known)[0];
  const auto axis = static_cast<int>(said < 0 ? said + from.rank() : said);
  std::vector<std::int64_t> begin(static_cast<std::size_t>(from.rank()), 0);
  for (std::size_t o = 0; o < used.size(); ++o) {
    const Shape part = node.outputs[o].shape;
    if (used[o]) {
      const ValueRef slice = values.add(
          node, "Slice",
          {whole, values.ints(node, begin), values.ints(node, {part.dims().begin(), part.dims().end()})}, {});
      replace_value(r.plan, {node.id, static_cast<int>(o)}, slice);
    }
    begin[static_cast<std::size_t>(axis)] += part[axis];
  }
  return true;
}

}  // namespace

void narrow_splits(Plan& plan) {
  ImageValues values(plan);
  run_rules(plan,
            {.rules = {{"split",
                        {"Split", "SplitV", "braid.SplitLike"},
                        [&values](Rewrite& r, const Match& match) { return narrow(r, values, match); }}},
             .text = [](const std::vector<int>& applied) {
               return std::to_string(applied[0]) + " splits are slices, as regions read their other parts";
             }});
}

}  // namespace braid
