// Sums of bags that are joined with others for a layer are written where they are joined:
//
//   ConcatV2(dense, BagMany(tables...):0, :1, ...)
//     -> PutColumns(BagMany(tables...; join_offsets, join_width):last, dense)
//
// The lookups do not wait for what else is joined, which is put in place when it is there. Where lookups are
// the smaller part of what is joined, they stay apart: the other parts would be copied anyway.
#include <algorithm>
#include <map>
#include <optional>

#include "engine/ops/common/halves.h"
#include "engine/ops/sparse/bag_args.h"
#include "engine/rewrite/passes.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

constexpr const char* kPutOffsets = "offsets";

struct JoinedBags {
  NodeId bags = kNoNode;
  std::map<int, std::int64_t> columns;  // by output: the first column that it becomes
  std::vector<std::size_t> others;      // among the join's inputs
  std::vector<std::int64_t> offsets;    // of these
  std::int64_t width = 0;
};

const Pattern& bag_many() {
  static const Pattern pattern{"braid.BagMany"};
  return pattern;
}

std::int64_t width_of_part(const Rewrite& r, ValueRef value) { return r.graph.info(value).shape[1]; }

/// Whether the join alone reads the output, and may have it.
bool is_for_join(const Rewrite& r, const Node& join, ValueRef value) {
  const Node& bags = r.node(value.node);
  return bag_many().names(bags) && !bags.attrs.has(kJoinOffsets) && is_inner(r.plan, bags.id) &&
         r.users.is_only_reader(join.id, value) && r.plan.domain_of(bags.id) == Domain::Device &&
         std::count(join.inputs.begin(), join.inputs.end(), value) == 1;
}

/// A join of columns on the device, in which those of one node of lookups are the larger part.
std::optional<JoinedBags> find_joined_bags(const Rewrite& r, const Match& match) {
  const Node& join = r.node(match[0]);
  const OutputInfo& whole = join.outputs[0];
  if (!is_inner(r.plan, join.id) || r.plan.domain_of(join.id) != Domain::Device || !whole.shape.is_static() ||
      whole.shape.rank() != 2 || join.inputs.size() < 3)
    return std::nullopt;
  const Tensor* axis = r.graph.known_value(join.inputs.back());
  if (!axis || (tensor_to_int64s(*axis)[0] != 1 && tensor_to_int64s(*axis)[0] != -1)) return std::nullopt;
  JoinedBags found;
  found.width = whole.shape[1];
  std::int64_t at = 0, of_bags = 0;
  for (std::size_t i = 0; i + 1 < join.inputs.size(); ++i) {
    const ValueRef part = join.inputs[i];
    const bool is_bag = is_for_join(r, join, part) && (found.bags == kNoNode || found.bags == part.node);
    if (is_bag) {
      found.bags = part.node;
      found.columns.emplace(part.output, at);
      of_bags += width_of_part(r, part);
    } else {
      found.others.push_back(i);
      found.offsets.push_back(at);
    }
    at += width_of_part(r, part);
  }
  if (found.columns.size() < 2 || 2 * of_bags < found.width) return std::nullopt;
  return found;
}

/// The lookups that write the join, in the place of those that do not.
NodeId add_joined_bags(Rewrite& r, const JoinedBags& found) {
  Node many = r.node(found.bags);  // a copy
  const auto tables = static_cast<int>(many.outputs.size());
  std::vector<std::int64_t> offsets;
  std::vector<ValueRef> apart;  // outputs that stay what they are
  for (int t = 0; t < tables; ++t) {
    const auto at = found.columns.find(t);
    offsets.push_back(at == found.columns.end() ? -1 : at->second);
    if (at == found.columns.end()) apart.push_back({found.bags, t});
  }
  many.attrs.set(kJoinOffsets, offsets);
  many.attrs.set(kJoinWidth, found.width);
  if (many.attrs.has(kHalfOutputs)) {
    std::vector<std::int64_t> all;
    for (std::int64_t o = 0; o <= std::ssize(apart); ++o) all.push_back(o);
    many.attrs.set(kHalfOutputs, all);
  }
  r.plan.domains.push_back(Domain::Device);
  const NodeId made = add_node(r.graph, std::move(many), r.node(found.bags).name + "/joined");
  for (int o = 0; o < static_cast<int>(apart.size()); ++o)
    replace_value(r.plan, apart[static_cast<std::size_t>(o)], {made, o});
  take_place(r.plan, found.bags, made);
  return made;
}

void write_joined_bags(Rewrite& r, const Match& match, const JoinedBags& found) {
  const NodeId bags = add_joined_bags(r, found);
  const ValueRef joined{bags, static_cast<int>(r.node(bags).outputs.size()) - 1};
  if (found.others.empty()) return replace_with(r.plan, match[0], joined);
  Node put;
  const Node& join = r.node(match[0]);
  put.op = &OpRegistry::global().require("braid.PutColumns");
  put.attrs = {{kPutOffsets, found.offsets}};
  put.inputs = {joined};
  for (const std::size_t other : found.others) put.inputs.push_back(join.inputs[other]);
  put.stream = join.stream;
  put.device = join.device;
  put.colocate_with = join.colocate_with;
  put.forward_of = join.forward_of;
  r.plan.domains.push_back(Domain::Device);
  replace(r.plan, match[0], std::move(put), "/rest");
}

}  // namespace

void join_bags(Plan& plan) {
  run_rules(plan, {.rules = {{"bags that are joined", {"ConcatV2"}, find_joined_bags, write_joined_bags}},
                   .text = [](const std::vector<int>& applied) {
                     return "sums of bags are written into " + std::to_string(applied[0]) + " joins";
                   }});
}

}  // namespace braid
