#include "engine/rewrite/image_groups.h"

#include <algorithm>
#include <utility>

#include "engine/rewrite/rule.h"

namespace braid {
namespace {

/// Of [n, places, groups, channels] to [n, groups, channels, places], and back.
const Order kFirst{0, 2, 3, 1}, kLast{0, 3, 1, 2};

std::int64_t places_of(const Shape& image, int first, int last) {
  std::int64_t places = 1;
  for (int axis = first; axis < last; ++axis) places *= image[axis];
  return places;
}

bool is_last_axis_of_three(const std::vector<std::int64_t>& axes) {
  return axes.size() == 1 && (axes[0] == 2 || axes[0] == -1);
}

}  // namespace

bool ImageGroups::sink(const Node& node) {
  static const Pattern reduction{"Sum", "Mean", "Max", "Min", "Prod"}, summed{"braid.ReduceToShapeOf"},
      spread{"braid.BroadcastReduced"},
      also_elementwise{"AddN", "Identity", "StopGradient", "PreventGradient"},
      reshaped{"Reshape", "braid.ReshapeLike"};
  if (node.outputs.size() != 1) return false;
  if (reshaped.names(node)) return behind(node.inputs[0]) ? end(node) : begin(node);
  if (node.op->traits.elements == Elements::Pointwise || also_elementwise.names(node))
    return sink_elementwise(node);
  if (reduction.names(node)) return sink_reduction(node);
  if (summed.names(node)) return sink_sum(node);
  return spread.names(node) && sink_spread(node);
}

std::optional<ValueRef> ImageGroups::behind(ValueRef value) const {
  const auto at = last_.find(value);
  if (at == last_.end()) return std::nullopt;
  return at->second;
}

bool ImageGroups::put_groups(const Node& node, ValueRef last) {
  const Shape groups = node.outputs[0].shape;
  const ValueRef first = values_.reshape(node, values_.transpose(node, last, kFirst), groups);
  last_[first] = last;
  return values_.put(node, first);
}

/// An image [n, places..., c] whose channels become groups.
bool ImageGroups::begin(const Node& node) {
  const auto image = values_.behind(node.inputs[0]);
  const Shape to = node.outputs[0].shape;
  if (!image || to.rank() != 3) return false;
  const Shape from = values_.shape(*image);
  const std::int64_t channels = from[from.rank() - 1], places = places_of(from, 1, from.rank() - 1);
  if (to[0] != from[0] || channels % to[1] != 0 || to[1] == channels || places == 1) return false;
  return put_groups(node, values_.reshape(node, *image, Shape{to[0], places, to[1], channels / to[1]}));
}

/// Groups that become an image's channels again.
bool ImageGroups::end(const Node& node) {
  const ValueRef last = *behind(node.inputs[0]);
  const Shape groups = values_.shape(last), to = node.outputs[0].shape;
  const Order to_front = channels_to_front(to.rank());
  if (to_front.empty() || to[0] != groups[0] || to[1] != groups[2] * groups[3] ||
      places_of(to, 2, to.rank()) != groups[1])
    return false;
  const ValueRef image = values_.reshape(node, last, permuted(to, inverse(to_front)));
  return values_.put(node, values_.to_front(node, image));
}

bool ImageGroups::sink_elementwise(const Node& node) {
  const Shape result = node.outputs[0].shape;
  std::optional<Shape> last;
  int others = 0, ready = 0;
  for (const ValueRef input : node.inputs) {
    const Shape& shape = values_.shape(input);
    if (const auto groups = behind(input); groups && shape == result) {
      last = values_.shape(*groups);
      ++ready;
    } else if (shape == result) {
      ++others;
    } else if (shape.elements() != 1 && (shape.rank() == 0 || shape[shape.rank() - 1] != 1)) {
      return false;  // it differs within a group
    }
  }
  if (!last || ready < others) return false;
  Node made = node;
  for (ValueRef& input : made.inputs) {
    const Shape shape = values_.shape(input);
    if (shape.elements() == 1) continue;
    if (shape != result) {
      const auto axis = [&](int a) { return a + shape.rank() < 3 ? 1 : shape[a + shape.rank() - 3]; };
      input = values_.reshape(node, input, Shape{axis(0), 1, axis(1), 1});
    } else if (const auto groups = behind(input)) {
      input = *groups;
    } else {
      const Shape apart{(*last)[0], (*last)[2], (*last)[3], (*last)[1]};
      input = values_.transpose(node, values_.reshape(node, input, apart), kLast);
    }
  }
  return put_groups(node, {values_.add(std::move(made), node.name + "/channels_last"), 0});
}

/// Over axes 1 and 3, which stay with one element.
ValueRef ImageGroups::reduced(const Node& like, std::string_view op, const AttrMap& attrs, ValueRef last) {
  ValueRef value = last;
  for (const std::int64_t axis : {3, 1}) {
    Node made = like;
    made.op = &OpRegistry::global().require(op);
    made.attrs = attrs;
    made.attrs.set("keep_dims", true);
    made.inputs = {value, values_.ints(like, {axis})};
    value = {values_.add(std::move(made), like.name + "/channels_last"), 0};
  }
  return value;
}

bool ImageGroups::sink_reduction(const Node& node) {
  const auto last = behind(node.inputs[0]);
  const auto axes = values_.known(node.inputs[1]);
  if (!last || !axes || !is_last_axis_of_three(*axes)) return false;
  const ValueRef kept = reduced(node, node.op->name, node.attrs, *last);
  return values_.put(node, values_.reshape(node, kept, node.outputs[0].shape));
}

bool ImageGroups::sink_sum(const Node& node) {
  const auto last = behind(node.inputs[0]);
  const Shape to = node.outputs[0].shape;
  if (!last || to.rank() == 0 || to.rank() > 3 || to[to.rank() - 1] != 1) return false;
  const Shape from = values_.shape(node.inputs[0]);
  std::vector<std::int64_t> axes;
  for (int axis = 0; axis < 2; ++axis) {
    const int of_to = axis + to.rank() - 3;
    if (from[axis] != (of_to < 0 ? 1 : to[of_to])) axes.push_back(2 * axis);
  }
  ValueRef sum = reduced(node, "Sum", {}, *last);
  if (!axes.empty()) sum = values_.add(node, "Sum", {sum, values_.ints(node, axes)}, {{"keep_dims", true}});
  return values_.put(node, values_.reshape(node, sum, to));
}

bool ImageGroups::sink_spread(const Node& node) {
  const auto like = behind(node.inputs[1]);
  const auto axes = values_.known(node.inputs[2]);
  if (!like || !axes || !is_last_axis_of_three(*axes)) return false;
  const Shape groups = values_.shape(*like);
  Node made = node;
  made.inputs = {values_.reshape(node, node.inputs[0], Shape{groups[0], 1, groups[2], 1}), *like,
                 values_.ints(node, {1, 3})};
  return put_groups(node, {values_.add(std::move(made), node.name + "/channels_last"), 0});
}

}  // namespace braid
