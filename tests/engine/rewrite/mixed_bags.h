// A small DLRM-v2 with its updates, for tests of mixed precision around tables: sums of bags of fixed sizes
// are joined with a layer, and tables learn by row-wise Adagrad.
#pragma once

#include <vector>

#include "tests/engine/rewrite/mixed_models.h"

namespace braid::testing {

/// Its targets are the updates; it fetches the loss.
MixedModel trained_bags();
/// The losses of `steps` steps of the same batch.
std::vector<float> losses_of(const MixedModel& model, const CompileOptions& options, int steps,
                             const std::shared_ptr<Accelerator>& device = nullptr);

}  // namespace braid::testing
