// Dense attention reads queries, keys and values where they are parts of a wider value, as in the output of
// one product that makes all three, behind whatever views, transpositions and slices take them out; and
// writes their gradients where that value's gradient has them:
//
//   Attention(Reshape(Transpose(Unpack(x)[0])), ...)         -> Attention(x, x, x; q_part, k_part, v_part)
//   Reshape(Transpose(Pack(dq, dk, dv))) of an AttentionGrad -> AttentionGrad(...; joined_shape, dq_part,
//   ...)
//
// Where rows come before heads only behind the output, in a transposition, and so for its gradient, the nodes
// write and read them in that order:
//
//   Transpose(Attention(...)), AttentionGrad(..., Transpose(d_output), ...) -> both with heads_inside
//
// So nothing is copied between the product and the attention (strided_view.h). On a device a part must begin,
// and go on, at multiples of 16 bytes, as the kernels with tensor cores read it. It comes behind mixed
// precision, as parts and their gradients must have one type.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "engine/graph/passes.h"
#include "engine/ir/op.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/nn/attention_node.h"
#include "engine/rewrite/passes.h"
#include "engine/rewrite/rule.h"
#include "engine/rewrite/strided_view.h"

namespace braid {
namespace {

using Dims = StridedView::Dims;

constexpr std::size_t kValues = 3;  // queries, keys, values; or their gradients
/// Inputs of the node backwards, behind these values: the output's gradient, the output and its sums.
constexpr std::size_t kOutputGradient = 3, kOutput = 4, kSums = 5;

class AttentionLayouts {
 public:
  explicit AttentionLayouts(Plan& plan) : plan_(plan), graph_(plan.program.graph), steps_(graph_) {}

  void run() {
    static const Pattern attention{"braid.Attention", "braid.AttentionGrad"}, gradient{"braid.AttentionGrad"};
    int read = 0, written = 0;
    std::vector<NodeId> nodes;
    for (const NodeId id : graph_.topological_order())
      if (attention.names(graph_.node(id)) && is_plain(plan_, graph_.node(id))) nodes.push_back(id);
    if (nodes.empty()) return;
    for (const NodeId id : nodes) read += read_parts(id);
    const Users users(graph_);
    for (const NodeId id : graph_.topological_order())
      if (const auto join = join_of(plan_, steps_, graph_.node(id))) written += write_parts(users, *join);
    if (read + written > 0) prune(plan_, true);  // readers that are left over
    const int turned = turn_outputs();
    if (read + written + turned == 0) return;
    if (turned > 0) prune(plan_, true);
    plan_.note(
        fmt::format("{} nodes of attention read parts of wider values, {} write their gradients there, {} "
                    "put rows before heads",
                    read, written, turned));
  }

 private:
  /// Outer index, head, row, width, in the order of a shape of values.
  struct Axes {
    Dims sizes;
    bool inside;
    Axes(const Shape& shape, bool inside) : inside(inside) {
      const int rank = shape.rank(), row = attention::row_axis(rank, inside),
                head = attention::head_axis(rank, inside);
      std::int64_t outer = 1;
      for (int a = 0; a < std::min(head, row); ++a) outer *= shape[a];
      const std::int64_t heads = head < 0 ? 1 : shape[head];
      sizes = {outer, inside ? shape[row] : heads, inside ? heads : shape[row], shape[rank - 1]};
    }
  };

  /// Where values of `shape` are in the view's source.
  std::optional<Dims> place(const StridedView& view, const Shape& shape, bool inside, DType dtype) const {
    if (!shape.is_static() || shape.elements() == 0) return std::nullopt;
    const Axes axes(shape, inside);
    const auto made = view.reshaped(axes.sizes);
    if (!made) return std::nullopt;
    const auto outer = made->step_of(0), second = made->step_of(1), third = made->step_of(2),
               width = made->step_of(3);
    if (!outer || !second || !third || !width || *width > 1) return std::nullopt;
    const Dims part{made->first, *outer, inside ? *third : *second, inside ? *second : *third};
    const auto pack = 16 / static_cast<std::int64_t>(dtype_size(dtype));
    if (plan_.options.domain == Domain::Device &&
        std::any_of(part.begin(), part.end(), [&](std::int64_t step) { return step % pack != 0; }))
      return std::nullopt;
    return part;
  }

  int read_parts(NodeId id) {
    const bool inside = attention::heads_inside(graph_.node(id).attrs);
    int changed = 0;
    for (std::size_t i = 0; i < kValues; ++i) {
      const ValueRef input = graph_.node(id).inputs[i];
      const OutputInfo info = graph_.info(input);
      if (!info.shape.is_static() || info.shape.elements() == 0) continue;
      const StridedView view = strided_view(plan_, steps_, input);
      if (view.source == input || !together(graph_.node(view.source.node), graph_.node(id))) continue;
      const auto part = place(view, info.shape, inside, info.dtype);
      if (!part) continue;
      Node& node = graph_.mutable_node(id);
      node.inputs[i] = view.source;
      node.attrs.set(attention::kPartShapes[i], Dims(info.shape.dims().begin(), info.shape.dims().end()));
      node.attrs.set(attention::kParts[i], *part);
      changed = 1;
    }
    return changed;
  }

  /// Whether nobody but `reader` has to do with the value, views and transpositions before it apart.
  bool is_for(const Users& users, NodeId reader, ValueRef value, ValueRef source) const {
    for (;;) {
      if (!users.is_only_reader(reader, value)) return false;
      if (value == source) return true;
      reader = value.node;
      if (!is_inner(plan_, reader) || graph_.node(reader).inputs.empty()) return false;
      value = graph_.node(reader).inputs[0];
    }
  }

  /// What is made of a join by views and transpositions that nobody else reads.
  ValueRef behind(const Users& users, NodeId join) const {
    static const Pattern transpose{"Transpose"};
    ValueRef value{join, 0};
    for (;;) {
      const std::vector<NodeId> readers = users.readers(value.node);
      if (readers.size() != 1 || users.of(value.node).size() != 1 || !is_inner(plan_, value.node))
        return value;
      const Node& next = graph_.node(readers[0]);
      const ValueRef made{next.id, 0};
      const bool passes = transpose.names(next) || steps_.source(plan_, made) != made;
      if (!passes || !is_plain(plan_, next) || !together(next, graph_.node(join)) ||
          strided_view(plan_, steps_, made).source != ValueRef{join, 0})
        return value;
      value = made;
    }
  }

  /// The gradients that a join has, each once.
  struct Joined {
    NodeId gradient = kNoNode;
    std::array<std::optional<Dims>, kValues> parts;
    bool is_whole() const {
      return std::all_of(parts.begin(), parts.end(), [](const auto& part) { return part.has_value(); });
    }
  };

  std::optional<Joined> joined(const Users& users, const Join& join, ValueRef to) const {
    static const Pattern gradient{"braid.AttentionGrad"};
    const Node& node = graph_.node(join.node);
    const auto lies = inverted(strided_view(plan_, steps_, to), to);
    const StridedView seen = whole_view(graph_, {join.node, 0});
    const auto whole = lies ? lies->reshaped(seen.sizes()) : std::nullopt;
    Joined found;
    for (std::size_t i = 0; whole && i < join.parts.size(); ++i) {
      const StridedView view = strided_view(plan_, steps_, node.inputs[i]);
      const Node& from = graph_.node(view.source.node);
      if (!gradient.names(from) || (found.gradient != kNoNode && found.gradient != from.id) ||
          view.source.output >= static_cast<int>(kValues) || !together(from, node) ||
          !is_for(users, join.node, node.inputs[i], view.source))
        return std::nullopt;
      found.gradient = from.id;
      const auto part = whole->part(join.width, join.columns, join.offsets[i]);
      const auto back = part ? reordered(*part, view) : std::nullopt;
      const OutputInfo& info = graph_.info(view.source);
      auto& at = found.parts[static_cast<std::size_t>(view.source.output)];
      if (!back || at || info.dtype != node.outputs[0].dtype) return std::nullopt;
      at = place(*back, info.shape, attention::heads_inside(from.attrs), info.dtype);
      if (!at) return std::nullopt;
    }
    return found.is_whole() ? std::optional(found) : std::nullopt;
  }

  /// `place` of a value with the axes of the source of `view`, which is of the same value.
  static std::optional<StridedView> reordered(const StridedView& place, const StridedView& view) {
    const std::vector<StridedView::Step> seen = view.all_steps();
    Dims sizes;
    for (const auto& step : seen) sizes.push_back(step.size);
    const auto own = place.reshaped(sizes);
    const auto back = inverted(view, view.source);
    if (!own || !back) return std::nullopt;
    StridedView made{place.source, place.first, {}};
    // An axis of the source is that of the view which goes through the value with the same step.
    for (const auto& axis : back->axes) {
      std::int64_t through = 1;
      for (std::size_t a = seen.size(); a-- > 0; through *= sizes[a])
        if (through == axis[0].step) made.axes.push_back(own->axes[a]);
    }
    return made;
  }

  int write_parts(const Users& users, const Join& join) {
    if (join.parts.size() != kValues) return 0;
    const ValueRef to = behind(users, join.node);
    const auto found = joined(users, join, to);
    if (!found || users.is_named(found->gradient)) return 0;
    Node made = graph_.node(found->gradient);
    if (made.attrs.has(attention::kJoinedShape)) return 0;
    const Shape& shape = graph_.info(to).shape;
    made.attrs.set(attention::kJoinedShape, Dims(shape.dims().begin(), shape.dims().end()));
    for (std::size_t o = 0; o < kValues; ++o) made.attrs.set(attention::kJoinedParts[o], *found->parts[o]);
    if (is_half(graph_.info(to).dtype)) made.attrs.set(kHalfOutputs, std::vector<std::int64_t>{0});
    const NodeId id = add_node(graph_, std::move(made), graph_.node(found->gradient).name + "/joined");
    take_place(plan_, found->gradient, id);
    replace_with(plan_, to.node, {id, 0});
    const int mask = static_cast<int>(kValues);
    if (graph_.node(id).attrs.get(attention::kMaskGradient, false))
      replace_value(plan_, {found->gradient, mask}, {id, mask});
    return 1;
  }

  // ------------------------------------------------------------------------ rows before heads

  /// Whether the node puts heads behind rows, or back.
  bool swaps_heads(const Node& node) const {
    static const Pattern transpose{"Transpose"};
    const int rank = node.outputs[0].shape.rank();
    const Tensor* order = transpose.names(node) && rank >= 3 ? graph_.known_value(node.inputs[1]) : nullptr;
    if (!order || !is_plain(plan_, node)) return false;
    const std::vector<std::int64_t> axes = tensor_to_int64s(*order);
    for (int a = 0; a < rank; ++a)
      if (axes[static_cast<std::size_t>(a)] != (a == rank - 3 ? rank - 2 : a == rank - 2 ? rank - 3 : a))
        return false;
    return true;
  }

  /// An attention whose output only such transpositions, and its gradient, read.
  struct Turned {
    NodeId forward = kNoNode, backward = kNoNode;
    std::vector<NodeId> transpositions;
  };

  std::optional<Turned> turned(const Users& users, NodeId id) const {
    static const Pattern gradient{"braid.AttentionGrad"};
    const Node& node = graph_.node(id);
    if (!is_inner(plan_, id) || users.is_named(id) || attention::heads_inside(node.attrs) ||
        !node.outputs[0].shape.is_static())
      return std::nullopt;
    Turned found{.forward = id, .transpositions = {}};
    for (const NodeId reader : users.of(id)) {
      const Node& user = graph_.node(reader);
      if (!together(user, node) || user.inputs.empty()) return std::nullopt;
      if (user.inputs[0] == ValueRef{id, 0} && swaps_heads(user) && is_inner(plan_, reader)) {
        found.transpositions.push_back(reader);
        continue;
      }
      if (!gradient.names(user) || (found.backward != kNoNode && found.backward != reader) ||
          user.inputs[kOutput] != ValueRef{id, 0} || user.inputs[kSums] != ValueRef{id, 1})
        return std::nullopt;
      found.backward = reader;
    }
    if (found.transpositions.empty()) return std::nullopt;
    if (found.backward == kNoNode) return found;
    const Node& backward = graph_.node(found.backward);
    const bool is_joined = backward.attrs.has(attention::kJoinedShape);
    return is_joined && !users.is_named(backward.id) && is_plain(plan_, backward) &&
                   swaps_heads(graph_.node(backward.inputs[kOutputGradient].node))
               ? std::optional(found)
               : std::nullopt;
  }

  /// The node with rows before heads. What its values' places were, they stay.
  Node with_rows_first(const Node& node) const {
    Node made = node;
    for (std::size_t i = 0; i < kValues; ++i) {
      const Shape shape =
          attention::values_shape(node.attrs, static_cast<int>(i), graph_.info(node.inputs[i]).shape);
      Dims dims(shape.dims().begin(), shape.dims().end());
      if (!node.attrs.has(attention::kParts[i])) {
        const std::int64_t row = dims.back(), head = row * shape[shape.rank() - 2];
        made.attrs.set(attention::kParts[i], Dims{0, head * shape[shape.rank() - 3], head, row});
      }
      std::swap(dims[dims.size() - 3], dims[dims.size() - 2]);
      made.attrs.set(attention::kPartShapes[i], dims);
    }
    made.attrs.set("heads_inside", true);
    return made;
  }

  int turn_outputs() {
    static const Pattern attention{"braid.Attention"};
    int count = 0;
    for (const NodeId id : graph_.topological_order()) {
      if (graph_.node(id).removed || !attention.names(graph_.node(id))) continue;
      const auto found = turned(Users(graph_), id);  // as those before have left it
      if (!found) continue;
      ++count;
      const NodeId forward =
          add_node(graph_, with_rows_first(graph_.node(id)), graph_.node(id).name + "/rows");
      take_place(plan_, id, forward);
      for (const NodeId transposition : found->transpositions)
        replace_with(plan_, transposition, {forward, 0});
      if (found->backward == kNoNode) continue;
      Node made = with_rows_first(graph_.node(found->backward));
      made.inputs[kOutputGradient] = graph_.node(made.inputs[kOutputGradient].node).inputs[0];
      made.inputs[kOutput] = {forward, 0};
      made.inputs[kSums] = {forward, 1};
      const NodeId backward = add_node(graph_, std::move(made), graph_.node(found->backward).name + "/rows");
      take_place(plan_, found->backward, backward);
      for (int o = 0; o < static_cast<int>(graph_.node(backward).outputs.size()); ++o)
        replace_value(plan_, {found->backward, o}, {backward, o});
    }
    return count;
  }

  Plan& plan_;
  Graph& graph_;
  NodeStepsCache steps_;
};

}  // namespace

void place_attention(Plan& plan) { AttentionLayouts(plan).run(); }

}  // namespace braid
