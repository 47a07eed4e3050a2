// Convolutions of images whose channels come first (NCHW, as PyTorch and ONNX write them) read and write
// channels that come last, which tensor cores, oneDNN and the passes behind this one want:
//
//   Conv2D(x, NCHW)     -> T(Conv2D(T'(x), NHWC))     so do its gradients, pooling and batch norm, and those
//                                                     of volumes
//   f(T(x), T(y), b)    -> T(f(x, y, b reshaped))     elementwise; sums, means, concatenation, splits,
//                                                     slices, padding and gathers have their axes changed
//   T'(T(x))            -> x
//
// T moves channels to the front, T' to the end. So transpositions move down until they meet their opposite,
// or a node that wants channels first, such as a flattening. Only T moves: of images of a convolution, with
// one axis to three (places may be counted by other axes on the way); of those with one, what the user has
// turned for a convolution, too. An elementwise node takes channels last where at least half of its large
// operands are ready so. Only in graphs with such convolutions. Where regions are made, group norm reads
// channels that are last, too (image_groups.h).
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "engine/ir/op.h"
#include "engine/rewrite/image_groups.h"
#include "engine/rewrite/image_ops.h"
#include "engine/rewrite/image_ranges.h"
#include "engine/rewrite/image_values.h"
#include "engine/rewrite/passes.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

class ChannelsLast : private ImageValues {
 public:
  explicit ChannelsLast(Plan& plan)
      : ImageValues(plan),
        plan_(plan),
        graph_(plan.program.graph),
        groups_(plan, *this),
        ranges_(plan, *this) {}

  void run() {
    static const Pattern convolution{"Conv2D", "Conv3D"};
    const std::vector<NodeId> nodes = graph_.topological_order();
    if (std::none_of(nodes.begin(), nodes.end(), [&](NodeId id) {
          return convolution.names(graph_.node(id)) && image_op(graph_.node(id)) && is_ready(graph_.node(id));
        }))
      return;
    for (const NodeId id : nodes) count_swaps(graph_.node(id));
    run_rules(plan_, {.rules = rules(), .text = [](const std::vector<int>& applied) {
                        return fmt::format(
                            "{} nodes of images and {} nodes between them have their channels last",
                            applied[0], std::accumulate(applied.begin() + 1, applied.end(), 0));
                      }});
  }

 private:
  using Sink = bool (ChannelsLast::*)(const Node&);

  Rule rule(std::string_view name, Pattern pattern, Sink sink) {
    return {name, std::move(pattern), [this, sink](Rewrite& rewrite, const Match& match) {
              const Node node = rewrite.node(match[0]);  // nodes are added
              return is_ready(node) && (this->*sink)(node);
            }};
  }

  std::vector<Rule> rules() {
    const Pattern elementwise([](const OpDef& op) { return op.traits.elements == Elements::Pointwise; });
    return {rule("image", Pattern(is_of_images), &ChannelsLast::turn_image_op),
            rule("transposition", {"Transpose"}, &ChannelsLast::sink_transpose),
            rule("group norm", Pattern([](const OpDef&) { return true; }), &ChannelsLast::sink_group_norm),
            rule("elementwise", elementwise, &ChannelsLast::sink_elementwise),
            rule("elementwise, too", {"AddN", "Identity", "StopGradient", "PreventGradient"},
                 &ChannelsLast::sink_elementwise),
            rule("reduction", {"Sum", "Mean", "Max", "Min", "Prod"}, &ChannelsLast::sink_reduction),
            rule("sum", {"braid.ReduceToShapeOf"}, &ChannelsLast::sink_sum),
            rule("spread", {"braid.BroadcastReduced"}, &ChannelsLast::sink_spread),
            rule("join", {"ConcatV2"}, &ChannelsLast::sink_join),
            rule("split", {"SplitV", "Split", "braid.SplitLike"}, &ChannelsLast::sink_split),
            rule("range", Pattern([](const OpDef&) { return true; }), &ChannelsLast::sink_range),
            rule("gather", {"GatherV2", "braid.GatherGrad"}, &ChannelsLast::sink_gather),
            rule("reshape", {"Reshape", "Squeeze", "ExpandDims", "braid.ReshapeLike"},
                 &ChannelsLast::sink_reshape)};
  }

  /// Sequences of channels that the user has turned for a convolution, whose unit axis they get, are images.
  void count_swaps(const Node& node) {
    static const Pattern view{"Reshape", "Squeeze", "ExpandDims", "braid.ReshapeLike"};
    const std::optional<ImageOp> op = image_op(node);
    if (!op || !is_ready(node)) return;
    for (const int image : op->images) {
      const Node* from = &graph_.node(node.inputs[static_cast<std::size_t>(image)].node);
      while (view.names(*from) && is_ready(*from)) from = &graph_.node(from->inputs[0].node);
      if (is_ready(*from) && order_of(*from) == channels_to_front(3)) count_as_front(from->id);
    }
  }

  bool is_ready(const Node& node) const {
    if (!is_plain(plan_, node) || node.inputs.empty() || node.outputs.empty() ||
        graph_.known_value({node.id, 0}))
      return false;
    for (const ValueRef input : node.inputs)
      if (!shape(input).is_static()) return false;
    return node.outputs[0].shape.elements() > 0 &&
           std::all_of(node.outputs.begin(), node.outputs.end(),
                       [](const OutputInfo& info) { return info.shape.is_static(); });
  }

  // nodes of images

  /// Numbers of the axes, `each` an axis.
  static std::vector<std::int64_t> last(const std::vector<std::int64_t>& first, std::size_t each) {
    std::vector<std::int64_t> result(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(each));
    result.insert(result.end(), first.begin() + static_cast<std::ptrdiff_t>(2 * each), first.end());
    result.insert(result.end(), first.begin() + static_cast<std::ptrdiff_t>(each),
                  first.begin() + static_cast<std::ptrdiff_t>(2 * each));
    return result;
  }

  /// A convolution of single places, which is a product in either layout.
  bool is_of_places(const Node& node) const {
    static const Pattern product{"Conv2D", "Conv2DBackpropInput",   "Conv2DBackpropFilter",
                                 "Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"};
    if (!product.names(node)) return false;
    static const Pattern of_filter{"Conv2DBackpropFilter", "Conv3DBackpropFilterV2"};
    const Shape filter = of_filter.names(node) ? node.outputs[0].shape : shape(node.inputs[1]);
    const auto strides = node.attrs.get<std::vector<std::int64_t>>("strides", {});
    return std::all_of(filter.dims().begin(), filter.dims().end() - 2,
                       [](std::int64_t size) { return size == 1; }) &&
           std::all_of(strides.begin(), strides.end(), [](std::int64_t stride) { return stride == 1; });
  }

  /// Of images with their channels in front, which lie in either layout alike.
  static bool has_one_place(const Shape& image) {
    return std::all_of(image.dims().begin() + std::min(image.rank(), 2), image.dims().end(),
                       [](std::int64_t size) { return size == 1; });
  }

  bool turn_image_op(const Node& node) {
    const std::optional<ImageOp> found = image_op(node);
    if (!found) return false;
    const ImageOp& op = *found;
    Node made = node;
    if (is_of_places(node) && std::none_of(op.images.begin(), op.images.end(), [&](int image) {
          const ValueRef value = node.inputs[static_cast<std::size_t>(image)];
          return behind(value) || has_one_place(shape(value));
        }))
      return false;
    const bool volumes = node.attrs.get<std::string>("data_format", "") == "NCDHW";
    const std::size_t rank = volumes ? 5 : 4;
    for (const int image : op.images)
      if (shape(node.inputs[static_cast<std::size_t>(image)]).rank() != static_cast<int>(rank)) return false;
    if (op.sizes >= 0) {
      const auto sizes = known(node.inputs[static_cast<std::size_t>(op.sizes)]);
      if (!sizes || sizes->size() != rank) return false;
      made.inputs[static_cast<std::size_t>(op.sizes)] = ints(node, last(*sizes, 1));
    }
    for (const char* name : {"strides", "dilations", "ksize", "explicit_paddings"}) {
      const auto values = node.attrs.get<std::vector<std::int64_t>>(name, {});
      if (values.size() == rank || values.size() == 2 * rank)
        made.attrs.set(name, last(values, values.size() / rank));
    }
    made.attrs.set("data_format", std::string(volumes ? "NDHWC" : "NHWC"));
    for (const int image : op.images) {
      ValueRef& input = made.inputs[static_cast<std::size_t>(image)];
      input = to_end(node, input);
    }
    const NodeId id = add(std::move(made), node.name + "/channels_last");
    std::vector<ValueRef> values;
    for (std::size_t k = 0; k < node.outputs.size(); ++k) values.push_back({id, static_cast<int>(k)});
    if (op.gives_image) values[0] = to_front(node, values[0]);
    return put(node, values);
  }

  // nodes between

  bool sink_transpose(const Node& node) {
    if (!behind(node.inputs[0]) || !order_of(graph_.node(node.inputs[0].node))) return false;
    return put(node, transpose(node, node.inputs[0], *order_of(node)));
  }

  /// Whether half of the operands that are as large as the result are T of something.
  bool is_worth_it(const std::vector<ValueRef>& operands, const Shape& result) const {
    int ready = 0, others = 0;
    for (const ValueRef operand : operands) {
      if (shape(operand) != result) continue;
      if (behind(operand))
        ++ready;
      else if (!keeps_elements(result, inverse(channels_to_front(result.rank()))))
        ++others;
    }
    return ready > 0 && ready >= others;
  }

  /// An operand that broadcasts to T's result, for what T is applied to.
  ValueRef operand_behind(const Node& node, ValueRef operand, int rank) {
    const Shape from = shape(operand);
    if (from.elements() == 1) return operand;
    std::vector<std::int64_t> dims(static_cast<std::size_t>(rank - from.rank()), 1);
    dims.insert(dims.end(), from.dims().begin(), from.dims().end());
    return to_end(node, reshape(node, operand, Shape(std::move(dims))));
  }

  bool sink_elementwise(const Node& node) {
    const Shape result = node.outputs[0].shape;
    if (node.outputs.size() != 1 || channels_to_front(result.rank()).empty() ||
        !is_worth_it(node.inputs, result))
      return false;
    Node made = node;
    for (ValueRef& input : made.inputs) input = operand_behind(node, input, result.rank());
    write_bias(made);
    return put(node, to_front(node, {add(std::move(made), node.name + "/channels_last"), 0}));
  }

  /// Of a sum with one number a channel, the node that layers are made of.
  void write_bias(Node& made) {
    static const Pattern sum{"AddV2", "Add"};
    if (!sum.names(made)) return;
    if (shape(made.inputs[0]).elements() < shape(made.inputs[1]).elements())
      std::swap(made.inputs[0], made.inputs[1]);
    const Shape &x = shape(made.inputs[0]), &bias = shape(made.inputs[1]);
    if (bias.rank() != x.rank() || bias[x.rank() - 1] != x[x.rank() - 1] ||
        bias.elements() != x[x.rank() - 1])
      return;
    made.op = &OpRegistry::global().require("BiasAdd");
    made.attrs = {{"data_format", std::string("NHWC")}};
    made.inputs[1] = reshape(made, made.inputs[1], Shape{bias.elements()});
  }

  bool sink_reduction(const Node& node) {
    const auto source = behind(node.inputs[0]);
    auto axes = known(node.inputs[1]);
    if (!source || !axes) return false;
    const int rank = shape(*source).rank();
    for (std::int64_t& axis : *axes) axis = axis_behind(axis, rank);
    Node made = node;
    made.inputs = {*source, ints(node, *axes)};
    made.attrs.set("keep_dims", true);
    const ValueRef kept = to_front(node, {add(std::move(made), node.name + "/channels_last"), 0});
    return put(node, reshape(node, kept, node.outputs[0].shape));
  }

  bool sink_sum(const Node& node) {
    const auto source = behind(node.inputs[0]);
    if (!source) return false;
    const Shape from = shape(node.inputs[0]), to = node.outputs[0].shape;
    if (to.rank() > from.rank() || from == to) return false;
    std::vector<std::int64_t> axes;
    for (int axis = 0; axis < from.rank(); ++axis) {
      const int of_to = axis - (from.rank() - to.rank());
      if (from[axis] != (of_to < 0 ? 1 : to[of_to])) axes.push_back(axis_behind(axis, from.rank()));
    }
    const ValueRef kept =
        to_front(node, add(node, "Sum", {*source, ints(node, axes)}, {{"keep_dims", true}}));
    return put(node, reshape(node, kept, to));
  }

  bool sink_spread(const Node& node) {
    const auto like = behind(node.inputs[1]);
    auto axes = known(node.inputs[2]);
    if (!like || !axes) return false;
    Shape kept = shape(node.inputs[1]);
    const int rank = kept.rank();
    for (std::int64_t& axis : *axes) {
      kept.set_dim(static_cast<int>(axis < 0 ? axis + rank : axis), 1);
      axis = axis_behind(axis, rank);
    }
    Node made = node;
    made.inputs = {to_end(node, reshape(node, node.inputs[0], kept)), *like, ints(node, *axes)};
    return put(node, to_front(node, {add(std::move(made), node.name + "/channels_last"), 0}));
  }

  bool sink_join(const Node& node) {
    const auto axis = known(node.inputs.back());
    const int rank = node.outputs[0].shape.rank();
    if (!axis || channels_to_front(rank).empty()) return false;
    std::vector<ValueRef> parts(node.inputs.begin(), node.inputs.end() - 1);
    std::int64_t ready = 0, others = 0;
    for (const ValueRef part : parts) (behind(part) ? ready : others) += shape(part).elements();
    if (ready == 0 || ready < others) return false;
    for (ValueRef& part : parts) part = to_end(node, part);
    parts.push_back(int_scalar(node, axis_behind((*axis)[0], rank)));
    Node made = node;
    made.inputs = std::move(parts);
    return put(node, to_front(node, {add(std::move(made), node.name + "/channels_last"), 0}));
  }

  bool sink_split(const Node& node) {
    static const Pattern by_sizes{"SplitV"}, like{"braid.SplitLike"};
    const std::size_t value = by_sizes.names(node) ? 0 : 1, axis_input = by_sizes.names(node) ? 2 : 0;
    const auto source = behind(node.inputs[value]);
    const auto axis = known(node.inputs[axis_input]);
    if (!source || !axis) return false;
    Node made = node;
    made.inputs[value] = *source;
    made.inputs[axis_input] = int_scalar(node, axis_behind((*axis)[0], shape(*source).rank()));
    if (like.names(node))
      for (std::size_t i = 2; i < node.inputs.size(); ++i) {
        const auto part = behind(node.inputs[i]);
        if (!part) return false;  // it would be made for its shape alone
        made.inputs[i] = *part;
      }
    const NodeId id = add(std::move(made), node.name + "/channels_last");
    std::vector<ValueRef> values;
    for (std::size_t k = 0; k < node.outputs.size(); ++k)
      values.push_back(to_front(node, {id, static_cast<int>(k)}));
    return put(node, values);
  }

  bool sink_group_norm(const Node& node) { return plan_.options.fusion && groups_.sink(node); }
  bool sink_range(const Node& node) { return ranges_.sink(node); }

  /// GatherV2(x, places, axis), as nearest neighbours have it, and GatherGrad(dy, places, like, axis).
  bool sink_gather(const Node& node) {
    static const Pattern gradient{"braid.GatherGrad"};
    const auto source = behind(node.inputs[0]);
    const auto axis = known(node.inputs.back());
    if (!source || !axis || shape(node.inputs[1]).rank() != 1 ||
        node.attrs.get<std::int64_t>("batch_dims", 0) != 0)
      return false;
    Node made = node;
    made.inputs[0] = *source;
    if (gradient.names(node)) {
      const auto like = behind(node.inputs[2]);
      if (!like) return false;
      made.inputs[2] = *like;
    }
    made.inputs.back() = int_scalar(node, axis_behind((*axis)[0], shape(*source).rank()));
    return put(node, to_front(node, {add(std::move(made), node.name + "/channels_last"), 0}));
  }

  /// Places are counted otherwise, as those of volumes that batch norm takes for images, or axes of one
  /// element come or go.
  bool sink_reshape(const Node& node) {
    const auto source = behind(node.inputs[0]);
    const Shape from = shape(node.inputs[0]), to = node.outputs[0].shape;
    const Order order = channels_to_front(to.rank());
    if (!source || order.empty()) return false;
    const Shape last = permuted(to, inverse(order));
    const bool keeps_channels = from[0] == to[0] && from[1] == to[1] && from[1] != 1;
    if (!keeps_channels &&
        (longer_axes(from) != longer_axes(to) || longer_axes(last) != longer_axes(shape(*source))))
      return false;
    return put(node, to_front(node, reshape(node, *source, last)));
  }

  Plan& plan_;
  Graph& graph_;
  ImageGroups groups_;
  ImageRanges ranges_;
};

}  // namespace

void put_channels_last(Plan& plan) { ChannelsLast(plan).run(); }

}  // namespace braid
