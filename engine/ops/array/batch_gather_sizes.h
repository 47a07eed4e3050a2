// The sizes of a braid.BatchGather (engine/ops/array/batch_gather.cc), for its kernels.
#pragma once

#include "engine/ir/op.h"

namespace braid {

/// params as [batch, outer, rows, width], indices as [batch, n].
struct BatchGatherSizes {
  std::int64_t batch = 1, outer = 1, rows = 1, width = 1, n = 1;

  /// Throws: InvalidArgument when attribute batch_dims does not fit.
  BatchGatherSizes(const PrepareContext& c, const Shape& params, const Shape& indices);
};

}  // namespace braid
