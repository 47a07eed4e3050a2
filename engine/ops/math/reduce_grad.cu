// CUDA kernels of what gradients of reductions need: braid.BroadcastReduced and braid.ProdGrad.
#include "engine/ops/common/cuda/axes.cuh"
#include "engine/ops/common/cuda/axis_reduce.h"
#include "engine/ops/common/cuda/elementwise.cuh"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/joined_axes.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

using cuda::DeviceAxes;

template <class T>
__global__ void spread_kernel(const T* x, T* y, std::int64_t n, cuda::DeviceBroadcast plan, T factor) {
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) {
    std::int64_t at[1];
    plan.locate(i, at);
    y[i] = x[at[0]] * factor;
  }
}

PreparedKernel prepare_broadcast(const PrepareContext& c) {
  const Shape& like = c.inputs[1].shape;
  const std::vector<int> axes = known_axes(c, 2, like.rank());
  const Shape kept = reduced_shape(like, axes, true);
  const std::int64_t n = like.elements(), count = reduced_count(like, axes);
  const bool divide = c.attr<bool>("divide", false);
  cuda::DeviceBroadcast plan;
  if (!plan.from(BroadcastPlan({&kept}, like))) c.fail("broadcasts over too many axes");
  return with_float("braid.BroadcastReduced", c.inputs[0].dtype, [&]<class T>() {
    const T factor = divide && count > 0 ? T(1) / static_cast<T>(count) : T(1);
    PreparedKernel kernel;
    kernel.run = [=](const KernelArgs& a) {
      if (n != 0)
        cuda::launch(spread_kernel<T>, cuda::blocks_for(n), cuda::kThreads, 0, a.stream, a.in<T>(0),
                     a.out<T>(0), n, plan, factor);
    };
    return kernel;
  });
}

/// The elements [begin, end) of a group: dx = before * the product of the others * after.
template <class T>
__device__ void others_product(const T* x, T* dx, const DeviceAxes& reduced, std::int64_t begin,
                               std::int64_t end, T before, T after) {
  for (std::int64_t k = begin; k < end; ++k) {
    const std::int64_t at = reduced.offset(k);
    dx[at] = before;
    before *= x[at];
  }
  for (std::int64_t k = end; k-- > begin;) {
    const std::int64_t at = reduced.offset(k);
    dx[at] *= after;
    after *= x[at];
  }
}

/// A thread a group.
template <class T>
__global__ void prod_kernel(const T* x, const T* dy, T* dx, DeviceAxes kept, DeviceAxes reduced,
                            std::int64_t groups, std::int64_t count) {
  for (std::int64_t g = cuda::grid_index(); g < groups; g += cuda::grid_size()) {
    const std::int64_t at = kept.offset(g);
    others_product(x + at, dx + at, reduced, 0, count, dy[g], T(1));
  }
}

/// A block a group: each thread has a chunk, and the products of all chunks before and after it.
template <class T>
__global__ void prod_block_kernel(const T* x, const T* dy, T* dx, DeviceAxes kept, DeviceAxes reduced,
                                  std::int64_t groups, std::int64_t count) {
  __shared__ T products[cuda::kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t length = (count + cuda::kThreads - 1) / cuda::kThreads;
  const std::int64_t begin = thread * length < count ? thread * length : count;
  const std::int64_t end = begin + length < count ? begin + length : count;
  for (std::int64_t g = blockIdx.x; g < groups; g += gridDim.x) {
    const std::int64_t at = kept.offset(g);
    T product = 1;
    for (std::int64_t k = begin; k < end; ++k) product *= x[at + reduced.offset(k)];
    products[thread] = product;
    __syncthreads();
    T before = dy[g], after = 1;
    for (int t = 0; t < thread; ++t) before *= products[t];
    for (int t = cuda::kThreads; --t > thread;) after *= products[t];
    others_product(x + at, dx + at, reduced, begin, end, before, after);
    __syncthreads();  // the products are overwritten by the next group's
  }
}

PreparedKernel prepare_prod(const PrepareContext& c) {
  const Shape& shape = c.inputs[0].shape;
  const JoinedAxes axes(shape, known_axes(c, 2, shape.rank()));
  DeviceAxes kept, reduced;
  bool fits = (axes.inner_reduced ? reduced : kept).add(axes.inner, 1);
  for (std::size_t a = axes.kept.size(); a-- > 0;)
    fits = fits && kept.add(axes.kept[a].size, axes.kept[a].stride);
  for (std::size_t a = axes.reduced.size(); a-- > 0;)
    fits = fits && reduced.add(axes.reduced[a].size, axes.reduced[a].stride);
  if (!fits) c.fail("has too many axes");
  const std::int64_t n = shape.elements();
  const std::int64_t groups = JoinedAxes::product(axes.kept) * (axes.inner_reduced ? 1 : axes.inner);
  return with_float("braid.ProdGrad", c.inputs[0].dtype, [&]<class T>() {
    PreparedKernel kernel;
    kernel.run = [=](const KernelArgs& a) {
      if (n == 0) return;
      const std::int64_t count = n / groups;
      const bool by_block = count > 64;
      const unsigned blocks = by_block ? cuda::blocks_for(groups * cuda::kThreads) : cuda::blocks_for(groups);
      cuda::launch(by_block ? prod_block_kernel<T> : prod_kernel<T>, blocks, cuda::kThreads, 0, a.stream,
                   a.in<T>(0), a.in<T>(1), a.out<T>(0), kept, reduced, groups, count);
    };
    return kernel;
  });
}

}  // namespace

void register_reduce_grad_cuda(OpRegistry& registry) {
  registry.add_cuda("braid.BroadcastReduced", prepare_broadcast,
                    [](const Node&, std::span<const OutputInfo> inputs) {
                      return !inputs[1].shape.has_rank() || inputs[1].shape.rank() <= 8;
                    });
  registry.add_cuda("braid.ProdGrad", prepare_prod, [](const Node&, std::span<const OutputInfo> inputs) {
    return cuda::reducible(inputs[0]);
  });
}

}  // namespace braid
