// Ranges of an image's axes, for the pass that puts channels last: what is cut out of it, what is put around
// it, and the gradients of both, which are each other. Thread rule: one thread.
#pragma once

#include "engine/rewrite/image_values.h"

namespace braid {

class ImageRanges {
 public:
  ImageRanges(const Plan& plan, ImageValues& values) : graph_(plan.program.graph), values_(values) {}

  /// Puts a slice or padding of an image, or the gradient of one, on channels last; gives whether it
  /// did. REQUIRES: static shapes.
  bool sink(const Node& node);

 private:
  bool sink_padding(const Node& node);
  bool sink_slice(const Node& node);
  bool sink_slice_gradient(const Node& node);
  ValueRef paddings(const Node& like, const std::vector<std::int64_t>& before,
                    const std::vector<std::int64_t>& after);

  const Graph& graph_;
  ImageValues& values_;
};

}  // namespace braid
