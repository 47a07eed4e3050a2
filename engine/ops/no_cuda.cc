// Stands in for the CUDA kernels where the CUDA Toolkit was not found: no op gets one.
#include "base/error.h"
#include "engine/ir/op.h"
#include "engine/ops/common/device_boxes.h"
#include "engine/ops/common/device_delay.h"
#include "engine/ops/common/home_swap.h"
#include "engine/ops/state/initial_rows.h"

namespace braid {

void register_cuda_kernels(OpRegistry&);
void register_cuda_kernels(OpRegistry&) {}

PreparedKernel device_box_kernel(const PrepareContext& c, BoxPlan) { c.fail("this build has no CUDA"); }
void device_delay(const KernelArgs&, double) {}
PreparedKernel device_home_swap(const PrepareContext& c, HomeSwapSpec) { c.fail("this build has no CUDA"); }

void fill_initial_rows(const InitialRows&, float*, StreamRef) { throw Internal("this build has no CUDA"); }

}  // namespace braid
