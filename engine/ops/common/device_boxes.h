// Box copies on a device for kernels of other folders, also where the build has no CUDA.
#pragma once

#include "engine/ops/common/box_plan.h"

namespace braid {

/// The plan's copies, enqueued on KernelArgs::stream; of the context only the accelerator and, where the plan
/// says zero_first, output 0 are read. Fails in a build without CUDA.
PreparedKernel device_box_kernel(const PrepareContext& c, BoxPlan plan);
/// Of braid.PutColumns (array/concat.cc).
PreparedKernel device_put_columns(const PrepareContext& c);

}  // namespace braid
