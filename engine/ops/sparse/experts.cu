// CUDA kernels of sparse mixtures of experts. A block places the choices of one group for one expert: it goes
// over them in their order, and a scan over the block counts. Rows are a thread an element; each slot has one
// token, so nothing is added up but a token's choices, in their order.
#include "engine/device/accelerator.h"
#include "engine/ops/common/cuda/divide.cuh"
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/sparse/expert_slots.h"

namespace braid {
namespace {

constexpr int kRouteThreads = 1024;

ExpertSlots slots_of(const PrepareContext& c, const Shape& choices) {
  return {choices[0], choices[1], c.attr("experts", std::int64_t{1}), c.attr("groups", std::int64_t{1}),
          c.attr("capacity_factor", 1.25)};
}

/// How many threads of the block before this one have `mine`; `all`: how many there are.
__device__ int place_in_block(bool mine, int* of_warps, int& all) {
  const unsigned votes = __ballot_sync(0xffffffffU, mine);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  if (lane == 0) of_warps[warp] = __popc(votes);
  __syncthreads();
  int before = 0;
  all = 0;
  for (int w = 0; w < kRouteThreads / 32; ++w) {
    if (w < warp) before += of_warps[w];
    all += of_warps[w];
  }
  __syncthreads();  // the next round overwrites them
  return before + __popc(votes & ((1U << lane) - 1U));
}

// choices, slots: [tokens, s.choices]; load: [tokens, s.experts]. Block (expert, group).
__global__ void __launch_bounds__(kRouteThreads)
    route_kernel(const std::int32_t* choices, std::int32_t* slots, float* load, ExpertSlots s,
                 StepStatus* status, int op) {
  __shared__ int of_warps[kRouteThreads / 32];
  const std::int64_t expert = blockIdx.x, group = blockIdx.y;
  const std::int64_t first = min(group * s.of_group, s.tokens), end = min(first + s.of_group, s.tokens);
  const std::int64_t tokens = end - first, all = tokens * s.choices;
  std::int64_t taken = 0;
  for (std::int64_t begin = 0; begin < all; begin += kRouteThreads) {
    const std::int64_t q = begin + threadIdx.x;  // first choices come first
    const std::int64_t k = q < all ? q / tokens : 0;
    const std::int64_t at = (first + (q - k * tokens)) * s.choices + k;
    const std::int32_t choice = q < all ? choices[at] : -1;
    const bool mine = q < all && choice == expert;
    if (expert == 0 && q < all && (choice < 0 || choice >= s.experts)) {
      slots[at] = -1;
      cuda::report(status, op, StatusCode::IndexOutOfRange, choice, s.experts);
    }
    int found = 0;
    const std::int64_t place = taken + place_in_block(mine, of_warps, found);
    if (mine)
      slots[at] = place < s.capacity
                      ? static_cast<std::int32_t>((expert * s.groups + group) * s.capacity + place)
                      : -1;
    taken += found;
  }
  const float share = all == 0 ? 0.0F : static_cast<float>(taken) / static_cast<float>(all);
  for (std::int64_t t = first + threadIdx.x; t < end; t += kRouteThreads)
    load[t * s.experts + expert] = share;
}

PreparedKernel prepare_route(const PrepareContext& c) {
  const ExpertSlots s = slots_of(c, c.inputs[0].shape);
  PreparedKernel kernel;
  kernel.run = [s](const KernelArgs& a) {
    if (s.tokens == 0) return;
    cuda::launch(route_kernel, dim3(static_cast<unsigned>(s.experts), static_cast<unsigned>(s.groups)),
                 kRouteThreads, 0, a.stream, a.in<std::int32_t>(0), a.out<std::int32_t>(0), a.out<float>(1),
                 s, a.status, a.op);
  };
  return kernel;
}

/// Rows of `width` elements: the row and the column of element i.
struct Rows {
  std::int64_t count, width;
  cuda::Divider by_width;

  Rows(std::int64_t rows, std::int64_t row_width)
      : count(rows), width(row_width), by_width(row_width < cuda::kDividerLimit ? row_width : 1) {}
  __device__ std::int64_t row(std::int64_t i) const {
    return count * width < cuda::kDividerLimit ? by_width.quotient(static_cast<std::uint32_t>(i)) : i / width;
  }
};

// x: [tokens, width]; slots, weights (or null): [tokens, choices]; out: [all, width], zeros.
template <class T>
__global__ void dispatch_kernel(const T* x, const std::int32_t* slots, const T* weights, T* out, Rows tokens,
                                int choices, std::int64_t all, StepStatus* status, int op) {
  for (std::int64_t i = cuda::grid_index(); i < tokens.count * tokens.width; i += cuda::grid_size()) {
    const std::int64_t t = tokens.row(i), column = i - t * tokens.width;
    const T value = x[i];
    for (int k = 0; k < choices; ++k) {
      const std::int32_t slot = slots[t * choices + k];
      if (slot >= all)
        cuda::report(status, op, StatusCode::IndexOutOfRange, slot, all);
      else if (slot >= 0)
        out[slot * tokens.width + column] = weights ? value * weights[t * choices + k] : value;
    }
  }
}

PreparedKernel prepare_dispatch(const PrepareContext& c) {
  const ExpertSlots s = slots_of(c, c.inputs[1].shape);
  const Rows tokens(s.tokens, c.inputs[0].shape[1]);
  const bool weighs = c.inputs.size() > 2;
  const auto bytes =
      static_cast<std::uint64_t>(c.outputs[0].shape.elements()) * dtype_size(c.outputs[0].dtype);
  return with_float("braid.DispatchTokens", c.inputs[0].dtype, [&]<class T>() {
    PreparedKernel kernel;
    kernel.run = [=, device = c.accelerator](const KernelArgs& a) {
      if (bytes != 0) device->fill_zero(a.outputs[0], bytes, a.stream);
      const std::int64_t elements = tokens.count * tokens.width;
      if (elements != 0)
        cuda::launch(dispatch_kernel<T>, cuda::blocks_for(elements), cuda::kThreads, 0, a.stream, a.in<T>(0),
                     a.in<std::int32_t>(1), weighs ? a.in<T>(2) : nullptr, a.out<T>(0), tokens,
                     static_cast<int>(s.choices), s.slots(), a.status, a.op);
    };
    return kernel;
  });
}

// y: [all, width]; slots, weights (or null): [tokens, choices]; out: [tokens, width].
template <class T>
__global__ void combine_kernel(const T* y, const std::int32_t* slots, const T* weights, T* out, Rows tokens,
                               int choices, std::int64_t all, StepStatus* status, int op) {
  for (std::int64_t i = cuda::grid_index(); i < tokens.count * tokens.width; i += cuda::grid_size()) {
    const std::int64_t t = tokens.row(i), column = i - t * tokens.width;
    T sum = 0;
    for (int k = 0; k < choices; ++k) {
      const std::int32_t slot = slots[t * choices + k];
      if (slot >= all)
        cuda::report(status, op, StatusCode::IndexOutOfRange, slot, all);
      else if (slot >= 0)
        sum += y[slot * tokens.width + column] * (weights ? weights[t * choices + k] : T(1));
    }
    out[i] = sum;
  }
}

PreparedKernel prepare_combine(const PrepareContext& c) {
  const Shape &y = c.inputs[0].shape, &slots = c.inputs[1].shape;
  const Rows tokens(slots[0], y[2]);
  const std::int64_t all = y[0] * y[1];
  const bool weighs = c.inputs.size() > 2;
  return with_float("braid.CombineTokens", c.inputs[0].dtype, [&]<class T>() {
    PreparedKernel kernel;
    kernel.run = [=, choices = static_cast<int>(slots[1])](const KernelArgs& a) {
      const std::int64_t elements = tokens.count * tokens.width;
      if (elements != 0)
        cuda::launch(combine_kernel<T>, cuda::blocks_for(elements), cuda::kThreads, 0, a.stream, a.in<T>(0),
                     a.in<std::int32_t>(1), weighs ? a.in<T>(2) : nullptr, a.out<T>(0), tokens, choices, all,
                     a.status, a.op);
    };
    return kernel;
  });
}

// x: [tokens, width]; y: [all, width]; slots, out: [tokens, choices]. A warp a choice.
template <class T>
__global__ void dots_kernel(const T* x, const T* y, const std::int32_t* slots, T* out, std::int64_t count,
                            int choices, std::int64_t width, std::int64_t all, StepStatus* status, int op) {
  const std::int64_t lane = cuda::grid_index() % 32;
  for (std::int64_t i = cuda::grid_index() / 32; i < count; i += cuda::grid_size() / 32) {
    const std::int32_t slot = slots[i];
    T sum = 0;
    if (slot >= all && lane == 0) cuda::report(status, op, StatusCode::IndexOutOfRange, slot, all);
    if (slot >= 0 && slot < all)
      for (std::int64_t column = lane; column < width; column += 32)
        sum += x[i / choices * width + column] * y[slot * width + column];
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, distance);
    if (lane == 0) out[i] = sum;
  }
}

PreparedKernel prepare_dots(const PrepareContext& c) {
  const Shape &y = c.inputs[1].shape, &slots = c.inputs[2].shape;
  const std::int64_t all = y[0] * y[1], count = slots.elements();
  return with_float("braid.SlotDots", c.inputs[0].dtype, [&]<class T>() {
    PreparedKernel kernel;
    kernel.run = [=, width = y[2], choices = static_cast<int>(slots[1])](const KernelArgs& a) {
      if (count != 0)
        cuda::launch(dots_kernel<T>, cuda::blocks_for(count * 32), cuda::kThreads, 0, a.stream, a.in<T>(0),
                     a.in<T>(1), a.in<std::int32_t>(2), a.out<T>(0), count, choices, width, all, a.status,
                     a.op);
    };
    return kernel;
  });
}

}  // namespace

void register_experts_cuda(OpRegistry& registry) {
  registry.add_cuda("braid.RouteToExperts", prepare_route);
  registry.add_cuda("braid.DispatchTokens", prepare_dispatch);
  registry.add_cuda("braid.CombineTokens", prepare_combine);
  registry.add_cuda("braid.SlotDots", prepare_dots);
}

}  // namespace braid
