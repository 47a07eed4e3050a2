// Groups of an image's channels, as group norm sees them, for the pass that puts channels last:
//
//   channels first   [n, c, h, w] -> [n, groups, c / groups h w], whose last axis is reduced
//   channels last    [n, h, w, c] -> [n, h w, groups, c / groups], whose axes 1 and 3 are
//
// The second reads the image as it lies. A sum over both axes is one over the last, which regions take in,
// and one over what that leaves. Thread rule: one thread.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "engine/rewrite/image_values.h"

namespace braid {

class ImageGroups {
 public:
  ImageGroups(Plan& plan, ImageValues& values) : plan_(plan), graph_(plan.program.graph), values_(values) {}

  /// Puts a node that reads groups, or makes or ends them, on channels last; gives whether it did.
  /// REQUIRES: static shapes.
  bool sink(const Node& node);

 private:
  /// What lies behind a value [n, groups, rest]: [n, places, groups, channels].
  std::optional<ValueRef> behind(ValueRef value) const;
  /// A value for those who want channels first.
  bool put_groups(const Node& node, ValueRef last);
  ValueRef reduced(const Node& like, std::string_view op, const AttrMap& attrs, ValueRef last);

  bool begin(const Node& node);
  bool end(const Node& node);
  bool sink_elementwise(const Node& node);
  bool sink_reduction(const Node& node);
  bool sink_sum(const Node& node);
  bool sink_spread(const Node& node);

  Plan& plan_;
  Graph& graph_;
  ImageValues& values_;
  std::map<ValueRef, ValueRef> last_;
};

}  // namespace braid
