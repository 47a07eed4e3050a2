#include "engine/ops/common/box_plan.h"

#include <cstring>
#include <utility>

namespace braid {

PreparedKernel host_box_kernel(const PrepareContext& c, BoxPlan plan) {
  std::size_t zero_bytes = 0;
  if (plan.zero_first)
    zero_bytes = static_cast<std::size_t>(c.outputs[0].shape.elements()) * dtype_size(c.outputs[0].dtype);
  PreparedKernel kernel;
  kernel.run = [plan = std::move(plan), zero_bytes, pool = &c.pool](const KernelArgs& a) {
    if (zero_bytes != 0) std::memset(a.outputs[0], 0, zero_bytes);
    for (const BoxPlan::Part& part : plan.parts)
      part.copy.run(*pool, a.inputs[part.input], a.outputs[part.output]);
  };
  return kernel;
}

}  // namespace braid
