// Where the elements of a value are in another one that it is made of by views, transpositions and parts, as
// axes with steps: so a node that takes steps reads them there, and nothing is copied. Thread rule: one
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/rewrite/region_parts.h"

namespace braid {

/// A value's axes, the outermost first, each of one or more axes with steps through the elements of `source`;
/// those of one place have none.
struct StridedView {
  using Dims = std::vector<std::int64_t>;
  struct Step {
    std::int64_t size, step;
  };
  using Axis = std::vector<Step>;

  ValueRef source;
  std::int64_t first = 0;  // the element that the value's first one is
  std::vector<Axis> axes;

  Dims sizes() const;
  std::vector<Step> all_steps() const;
  /// The same elements in other sizes; nothing where an axis would have to be cut unevenly. REQUIRES: as many
  /// elements, at least one.
  std::optional<StridedView> reshaped(const Dims& to) const;
  StridedView permuted(const std::vector<int>& order) const;
  /// The part that has `columns` elements, from `offset` on, of rows of `width`; nothing where no axis is cut
  /// so.
  std::optional<StridedView> part(std::int64_t width, std::int64_t columns, std::int64_t offset) const;
  /// The step of an axis, 0 where it has one place; nothing where it is several.
  std::optional<std::int64_t> step_of(std::size_t axis) const;
};

/// A value as it lies. REQUIRES: a static shape.
StridedView whole_view(const Graph& graph, ValueRef value);
/// A value of a static shape as elements of what it is made of, as far as steps can say it.
StridedView strided_view(const Plan& plan, const NodeStepsCache& steps, ValueRef value);
/// Of a view of all elements of its source, in any order: the source's axes, split where need be, as elements
/// of `value`, which the view is of.
std::optional<StridedView> inverted(const StridedView& view, ValueRef value);

}  // namespace braid
