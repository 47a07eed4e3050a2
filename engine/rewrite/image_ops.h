// Ops of images, for the pass that puts channels last. Thread rule: pure functions.
#pragma once

#include <optional>
#include <vector>

#include "engine/ir/op.h"

namespace braid {

/// Inputs that are images; outputs[0] is one where `gives_image`; input `sizes` holds an image's shape, if
/// any.
struct ImageOp {
  std::vector<int> images;
  bool gives_image = true;
  int sizes = -1;
};

/// Whether it has a data_format.
bool is_of_images(const OpDef& op);
/// Of a node whose images have their channels first.
std::optional<ImageOp> image_op(const Node& node);

}  // namespace braid
