// The input `paddings` of the ops that add elements around a tensor: how many before and behind each axis.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ir/op.h"

namespace braid {

struct Paddings {
  std::int64_t rank = Shape::kUnknown;  // of input 0
  /// Before and behind axis 0, before and behind axis 1, ...; empty when they are not known.
  std::vector<std::int64_t> values;
};

/// Input 1 as paddings of input 0. Fails unless it is an index type of shape [rank, 2] without negative
/// values.
Paddings require_paddings(const InferContext& c);

}  // namespace braid
