#include "engine/rewrite/strided_view.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "engine/rewrite/rewrite.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

using Dims = StridedView::Dims;
using Step = StridedView::Step;

std::int64_t product_from(const Dims& sizes, std::size_t axis) {
  return std::accumulate(sizes.begin() + static_cast<std::ptrdiff_t>(axis), sizes.end(), std::int64_t{1},
                         std::multiplies<>());
}

std::int64_t places(const StridedView::Axis& axis) {
  std::int64_t n = 1;
  for (const Step& step : axis) n *= step.size;
  return n;
}

/// Takes the outermost `size` places off the axes behind `at`, the rest of one that is cut stays there.
std::optional<StridedView::Axis> take(std::vector<Step>& all, std::size_t& at, std::int64_t size) {
  StridedView::Axis axis;
  while (size > 1) {
    if (at == all.size()) return std::nullopt;
    Step& next = all[at];
    if (size % next.size == 0) {
      axis.push_back(next);
      size /= next.size;
      ++at;
    } else if (next.size % size == 0) {
      next.size /= size;
      axis.push_back({size, next.step * next.size});
      size = 1;
    } else {
      return std::nullopt;
    }
  }
  return axis;
}

bool is_known_transpose(const Plan& plan, const Node& node) {
  static const Pattern transpose{"Transpose"};
  return transpose.names(node) && is_plain(plan, node) && plan.feed_of({node.id, 0}) < 0 &&
         plan.program.graph.known_value(node.inputs[1]) != nullptr;
}

std::vector<int> axes_of(const Graph& graph, const Node& transpose) {
  std::vector<int> axes;
  for (const std::int64_t axis : tensor_to_int64s(*graph.known_value(transpose.inputs[1])))
    axes.push_back(static_cast<int>(axis));
  return axes;
}

}  // namespace

Dims StridedView::sizes() const {
  Dims all;
  for (const Axis& axis : axes) all.push_back(places(axis));
  return all;
}

std::vector<Step> StridedView::all_steps() const {
  std::vector<Step> all;
  for (const Axis& axis : axes) all.insert(all.end(), axis.begin(), axis.end());
  return all;
}

std::optional<StridedView> StridedView::reshaped(const Dims& to) const {
  StridedView made{source, first, {}};
  std::vector<Step> all = all_steps();
  std::size_t at = 0;
  for (const std::int64_t size : to) {
    auto axis = take(all, at, size);
    if (!axis) return std::nullopt;
    made.axes.push_back(std::move(*axis));
  }
  return made;
}

StridedView StridedView::permuted(const std::vector<int>& order) const {
  StridedView made{source, first, {}};
  for (const int axis : order) made.axes.push_back(axes[static_cast<std::size_t>(axis)]);
  return made;
}

std::optional<StridedView> StridedView::part(std::int64_t width, std::int64_t columns,
                                             std::int64_t offset) const {
  const Dims all = sizes();
  for (std::size_t a = all.size(); a-- > 0;) {
    const std::int64_t behind = product_from(all, a + 1);
    if (behind * all[a] != width || columns % behind != 0 || offset % behind != 0) continue;
    StridedView made = *this;
    if (columns == width) return made;
    Step& outer = made.axes[a].front();
    const std::int64_t within = behind * all[a] / outer.size;
    if (columns % within != 0 || offset % within != 0) return std::nullopt;
    outer.size = columns / within;
    made.first += offset / within * outer.step;
    if (outer.size == 1) made.axes[a].erase(made.axes[a].begin());
    return made;
  }
  return std::nullopt;
}

std::optional<std::int64_t> StridedView::step_of(std::size_t axis) const {
  const Axis& its = axes[axis];
  for (std::size_t i = 0; i + 1 < its.size(); ++i)
    if (its[i].step != its[i + 1].size * its[i + 1].step) return std::nullopt;
  return its.empty() ? 0 : its.back().step;
}

StridedView whole_view(const Graph& graph, ValueRef value) {
  const Shape& shape = graph.info(value).shape;
  const Dims sizes(shape.dims().begin(), shape.dims().end());
  StridedView made{value, 0, std::vector<StridedView::Axis>(sizes.size())};
  for (std::size_t a = 0; a < sizes.size(); ++a)
    if (sizes[a] != 1) made.axes[a] = {{sizes[a], product_from(sizes, a + 1)}};
  return made;
}

StridedView strided_view(const Plan& plan, const NodeStepsCache& steps, ValueRef value) {
  const Graph& graph = plan.program.graph;
  const StridedView whole = whole_view(graph, value);
  if (graph.info(value).shape.elements() == 0) return whole;
  const Dims sizes = whole.sizes();
  if (const ValueRef seen = steps.source(plan, value); seen != value)
    return strided_view(plan, steps, seen).reshaped(sizes).value_or(whole);
  const Node& node = graph.node(value.node);
  if (is_known_transpose(plan, node) && graph.info(node.inputs[0]).shape.is_static())
    return strided_view(plan, steps, node.inputs[0]).permuted(axes_of(graph, node));
  const auto taken = part_of(plan, value);
  if (!taken) return whole;
  for (const StridedView& of : {strided_view(plan, steps, taken->whole), whole_view(graph, taken->whole)})
    if (const auto part = of.part(taken->width, taken->columns, taken->offset))
      if (const auto made = part->reshaped(sizes)) return *made;
  return whole;
}

std::optional<StridedView> inverted(const StridedView& view, ValueRef value) {
  const std::vector<Step> there = view.all_steps();
  std::vector<std::size_t> order(there.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return there[a].step > there[b].step; });
  Dims own(there.size());  // the view's axes through the value
  std::int64_t step = 1;
  for (std::size_t a = there.size(); a-- > 0; step *= there[a].size) own[a] = step;
  StridedView made{value, 0, {}};
  std::int64_t expected = step;
  for (const std::size_t a : order) {
    expected /= there[a].size;
    if (there[a].step != expected) return std::nullopt;
    made.axes.push_back({{there[a].size, own[a]}});
  }
  return view.first == 0 ? std::optional(made) : std::nullopt;
}

}  // namespace braid
