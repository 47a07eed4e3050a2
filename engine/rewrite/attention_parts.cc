// On a device, attention within rows reads queries, keys and values where they are parts of a wider value, as
// in the output of one product, and writes their gradients where that value's gradient has them:
//
//   RaggedAttention(Reshape(Split(x)[2]), Reshape(Split(x)[3]), Reshape(Split(x)[1]), offsets)
//     -> RaggedAttention(x as heads, x as heads, x as heads, offsets; heads, first_heads)
//   ConcatV2(du, dv, dq, dk), the last three of a RaggedAttentionGrad
//     -> RaggedAttentionGrad(..., du; joined_heads, first_gradients, rest_columns)
//
// So nothing is copied out of the product and back but what others give, du here. Regions that read parts do
// the same (region_parts.h). It comes behind mixed precision, as parts and their gradients must have one
// type.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "engine/graph/passes.h"
#include "engine/ir/device_name.h"
#include "engine/ir/op.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/ragged/attention_node.h"
#include "engine/rewrite/passes.h"
#include "engine/rewrite/region_parts.h"
#include "engine/rewrite/region_program.h"
#include "engine/rewrite/reshape_node.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

using attention::HeadParts;

constexpr std::size_t kHeads = 3;  // queries, keys, values; or their gradients

/// Heads of a value [n, more heads, d].
struct Part {
  ValueRef whole;
  std::int64_t heads = 0, first = 0;  // of the whole; in front of the part
};

class AttentionParts {
 public:
  explicit AttentionParts(Plan& plan)
      : rewrite_(plan), plan_(plan), graph_(plan.program.graph), steps_(graph_) {}

  void run() {
    static const Pattern attention{"braid.RaggedAttention", "braid.RaggedAttentionGrad"}, join{"ConcatV2"};
    int read = 0, written = 0;
    for (const NodeId id : graph_.topological_order())
      if (attention.names(graph_.node(id)) && is_ours(graph_.node(id))) read += read_parts(id);
    for (const NodeId id : graph_.topological_order())
      if (join.names(graph_.node(id)) && is_inner(plan_, id)) written += write_parts(id);
    if (read + written == 0) return;
    prune(plan_, true);
    plan_.note(fmt::format(
        "{} nodes read parts of wider values where they are, {} write their gradients there", read, written));
  }

 private:
  bool runs_on_device(const Node& node) const {
    if (node.removed || !node.op->cuda || !suits_device(plan_, node)) return false;
    return node.device.empty() || parse_device_name(node.device).kind.value_or("GPU") == "GPU";
  }

  bool is_ours(const Node& node) const {
    return runs_on_device(node) && is_plain(plan_, node) && !HeadParts(node.attrs).are_there() &&
           node.outputs[0].shape.is_static() && node.outputs[0].shape.elements() > 0 &&
           graph_.info(node.inputs[0]).shape.is_static();
  }

  /// Heads of d numbers, `heads` of them, in a value of n rows, that an input of the node is.
  std::optional<Part> part(const Node& node, ValueRef input) const {
    const Shape& shape = graph_.info(input).shape;
    if (!shape.is_static() || shape.elements() == 0) return std::nullopt;
    const ValueRef source = steps_.source(plan_, input);
    const auto of = part_of(plan_, source);
    const std::int64_t n = shape[0], width = shape[1] * shape[2];
    if (!of || !together(graph_.node(source.node), node) || of->columns != width ||
        of->width % shape[2] != 0 || of->offset % shape[2] != 0 ||
        graph_.info(of->whole).shape.elements() != n * of->width)
      return std::nullopt;
    return Part{of->whole, of->width / shape[2], of->offset / shape[2]};
  }

  int read_parts(NodeId id) {
    const Node node = graph_.node(id);
    std::array<std::optional<Part>, kHeads> parts;
    bool any = false;
    for (std::size_t i = 0; i < kHeads; ++i) {
      parts[i] = part(node, node.inputs[i]);
      any = any || parts[i].has_value();
    }
    if (!any) return 0;
    const Shape shape = graph_.info(node.inputs[0]).shape;
    std::vector<std::int64_t> first(kHeads);
    for (std::size_t i = 0; i < kHeads; ++i) {
      if (!parts[i]) continue;
      first[i] = parts[i]->first;
      const std::int64_t width = graph_.info(node.inputs[i]).shape[2];
      graph_.mutable_node(id).inputs[i] = as_heads(node, parts[i]->whole, {shape[0], parts[i]->heads, width});
    }
    graph_.mutable_node(id).attrs.set("heads", shape[1]);
    graph_.mutable_node(id).attrs.set("first_heads", first);
    return 1;
  }

  ValueRef as_heads(const Node& like, ValueRef value, const Shape& shape) {
    Node view = like;
    view.inputs.clear();
    return {add_node(graph_, reshape_node(graph_, view, value, shape), like.name + "/parts"), 0};
  }

  /// What a join is made of: gradients of one node, each where it begins, and the rest.
  struct Joined {
    NodeId gradient = kNoNode;
    std::array<std::int64_t, kHeads> columns{-1, -1, -1};
    std::vector<std::pair<ValueRef, std::int64_t>> rest;
  };

  /// Whether nobody but `reader` has to do with the value, views between them apart.
  bool is_for(NodeId reader, ValueRef value, ValueRef source) const {
    for (;;) {
      if (!rewrite_.users.is_only_reader(reader, value)) return false;
      if (value == source) return true;
      reader = value.node;
      if (!is_inner(plan_, reader)) return false;
      value = graph_.node(reader).inputs[0];
    }
  }

  std::optional<Joined> joined(const Node& join) const {
    static const Pattern gradient{"braid.RaggedAttentionGrad"};
    const Tensor* axis = graph_.known_value(join.inputs.back());
    if (!axis || join.outputs[0].shape.rank() != 2 || !join.outputs[0].shape.is_static() ||
        tensor_to_int64s(*axis)[0] % 2 == 0)  // 1 or -1
      return std::nullopt;
    Joined found;
    std::int64_t column = 0;
    for (std::size_t i = 0; i + 1 < join.inputs.size(); ++i) {
      const ValueRef input = join.inputs[i], source = steps_.source(plan_, input);
      if (gradient.names(graph_.node(source.node)) && is_for(join.id, input, source) &&
          (found.gradient == kNoNode || found.gradient == source.node) && source.output < 3) {
        found.gradient = source.node;
        found.columns[static_cast<std::size_t>(source.output)] = column;
      } else {
        found.rest.emplace_back(input, column);
      }
      column += graph_.info(input).shape[1];
    }
    const bool all = std::none_of(found.columns.begin(), found.columns.end(), [](auto c) { return c < 0; });
    return all && fits(join, found) ? std::optional(found) : std::nullopt;
  }

  bool fits(const Node& join, const Joined& found) const {
    const Node& node = graph_.node(found.gradient);
    if (!runs_on_device(node) || !is_inner(plan_, node.id) || HeadParts(node.attrs).joined > 0 ||
        !together(node, join) || rewrite_.users.is_named(node.id))
      return false;
    const std::int64_t width = node.outputs[0].shape[2];
    for (std::size_t o = 0; o < kHeads; ++o)
      if (node.outputs[o].shape[2] != width || node.outputs[o].dtype != join.outputs[0].dtype ||
          found.columns[o] % width != 0)
        return false;
    return join.outputs[0].shape[1] % width == 0;
  }

  int write_parts(NodeId id) {
    const Node join = graph_.node(id);
    const auto found = joined(join);
    if (!found) return 0;
    Node made = graph_.node(found->gradient);
    const std::int64_t width = made.outputs[0].shape[2];
    std::vector<std::int64_t> first, rest;
    for (const std::int64_t column : found->columns) first.push_back(column / width);
    for (const auto& [value, column] : found->rest) {
      made.inputs.push_back(value);
      rest.push_back(column);
    }
    made.attrs.set("joined_heads", join.outputs[0].shape[1] / width);
    made.attrs.set("first_gradients", first);
    made.attrs.set("rest_columns", rest);
    if (is_half(join.outputs[0].dtype)) made.attrs.set(kHalfOutputs, std::vector<std::int64_t>{0});
    const NodeId written = add_node(graph_, std::move(made), graph_.node(found->gradient).name + "/joined");
    take_place(plan_, found->gradient, written);
    replace(plan_, id, reshape_node(graph_, join, {written, 0}, join.outputs[0].shape), "/joined");
    return 1;
  }

  Rewrite rewrite_;
  Plan& plan_;
  Graph& graph_;
  NodeStepsCache steps_;
};

}  // namespace

void read_attention_parts(Plan& plan) { AttentionParts(plan).run(); }

}  // namespace braid
