// CUDA kernel of L2Loss: common/cuda/axis_reduce.h.
#include "engine/ops/common/cuda/axis_reduce.h"
#include "engine/ops/common/dispatch.h"

namespace braid {
namespace {

PreparedKernel prepare(const PrepareContext& c) {
  const Shape flat{c.inputs[0].shape.elements()};
  return with_float("L2Loss", c.inputs[0].dtype, [&]<class T>() {
    return cuda::prepare_reduce<reduce::SumOfSquares, T>(c, flat, {0}, T(2));
  });
}

}  // namespace

void register_l2_loss_cuda(OpRegistry& registry) { registry.add_cuda("L2Loss", prepare); }

}  // namespace braid
