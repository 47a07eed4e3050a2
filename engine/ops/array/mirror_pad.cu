// CUDA kernels of MirrorPad, a thread an output element, and MirrorPadGrad, where a thread adds the images of
// one inner element in their order.
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/cuda/row_groups.h"
#include "engine/ops/common/cuda/unit.cuh"
#include "engine/ops/common/dispatch.h"

namespace braid {
namespace {

constexpr int kMaxAxes = 8;

/// The inner tensor and how it is padded, innermost axis first.
struct Mirror {
  int axes = 0;
  std::int64_t size[kMaxAxes], before[kMaxAxes], after[kMaxAxes];
  std::int64_t offset;  // 1 when the border element is not repeated

  Mirror(const PrepareContext& c, const Shape& inner)
      : axes(inner.rank()), offset(c.attr("mode", std::string("REFLECT")) == "REFLECT" ? 1 : 0) {
    const std::vector<std::int64_t> pads = tensor_to_int64s(*c.values[1]);
    for (int k = 0; k < axes; ++k) {
      const int axis = axes - 1 - k;
      size[k] = inner[axis];
      before[k] = pads[static_cast<std::size_t>(2 * axis)];
      after[k] = pads[static_cast<std::size_t>(2 * axis + 1)];
    }
  }

  __device__ std::int64_t padded(int k) const { return before[k] + size[k] + after[k]; }
};

template <class U>
__global__ void mirror_pad_kernel(const U* x, U* y, std::int64_t n, Mirror m) {
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) {
    std::int64_t rest = i, from = 0, stride = 1;
    for (int k = 0; k < m.axes; ++k) {
      const std::int64_t next = rest / m.padded(k);
      std::int64_t at = rest - next * m.padded(k) - m.before[k];
      if (at < 0) at = -at - 1 + m.offset;
      if (at >= m.size[k]) at = 2 * m.size[k] - 1 - m.offset - at;
      from += at * stride;
      stride *= m.size[k];
      rest = next;
    }
    y[i] = x[from];
  }
}

PreparedKernel prepare(const PrepareContext& c) {
  const Mirror mirror(c, c.inputs[0].shape);
  const std::int64_t n = c.outputs[0].shape.elements();
  return cuda::with_element_of(dtype_size(c.inputs[0].dtype), [&]<class U>() {
    PreparedKernel kernel;
    kernel.run = [n, mirror](const KernelArgs& a) {
      if (n != 0)
        cuda::launch(mirror_pad_kernel<U>, cuda::blocks_for(n), cuda::kThreads, 0, a.stream, a.in<U>(0),
                     a.out<U>(0), n, mirror);
    };
    return kernel;
  });
}

/// An axis has at most three images of an element: before, the element itself, after.
template <class T>
__global__ void mirror_pad_grad_kernel(const T* dy, T* dx, std::int64_t n, Mirror m) {
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) {
    std::int64_t images[kMaxAxes][3];  // offsets in dy
    int count[kMaxAxes], at[kMaxAxes];
    std::int64_t rest = i, stride = 1;
    for (int k = 0; k < m.axes; ++k) {
      const std::int64_t next = rest / m.size[k], own = rest - next * m.size[k];
      const std::int64_t low = m.offset - 1 - own, high = 2 * m.size[k] - 1 - m.offset - own;
      int images_here = 0;
      if (low < 0 && low >= -m.before[k]) images[k][images_here++] = (low + m.before[k]) * stride;
      images[k][images_here++] = (own + m.before[k]) * stride;
      if (high >= m.size[k] && high < m.size[k] + m.after[k])
        images[k][images_here++] = (high + m.before[k]) * stride;
      count[k] = images_here;
      at[k] = 0;
      stride *= m.padded(k);
      rest = next;
    }
    T sum{};
    for (int carry = 0; carry < m.axes || m.axes == 0;) {
      std::int64_t from = 0;
      for (int k = 0; k < m.axes; ++k) from += images[k][at[k]];
      sum += dy[from];
      for (carry = 0; carry < m.axes && ++at[carry] == count[carry]; ++carry) at[carry] = 0;
      if (m.axes == 0) break;
    }
    dx[i] = sum;
  }
}

PreparedKernel prepare_grad(const PrepareContext& c) {
  const Mirror mirror(c, c.outputs[0].shape);
  const std::int64_t n = c.outputs[0].shape.elements();
  return with_number("MirrorPadGrad", c.inputs[0].dtype, [&]<class T>() {
    PreparedKernel kernel;
    kernel.run = [n, mirror](const KernelArgs& a) {
      if (n != 0)
        cuda::launch(mirror_pad_grad_kernel<T>, cuda::blocks_for(n), cuda::kThreads, 0, a.stream, a.in<T>(0),
                     a.out<T>(0), n, mirror);
    };
    return kernel;
  });
}

bool has_few_axes(const OutputInfo& input) {
  return input.shape.has_rank() && input.shape.rank() <= kMaxAxes;
}

}  // namespace

void register_mirror_pad_cuda(OpRegistry& registry) {
  registry.add_cuda("MirrorPad", prepare, [](const Node&, std::span<const OutputInfo> inputs) {
    return dtype_size(inputs[0].dtype) != 0 && has_few_axes(inputs[0]);
  });
  registry.add_cuda("MirrorPadGrad", prepare_grad, [](const Node&, std::span<const OutputInfo> inputs) {
    return cuda::is_row_type(inputs[0].dtype) && has_few_axes(inputs[0]);
  });
}

}  // namespace braid
