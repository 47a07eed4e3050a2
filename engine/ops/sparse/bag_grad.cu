// CUDA kernels of what the gradient of braid.Bag is made of.
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/half.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/sparse/bag_parts.cuh"

namespace braid {
namespace {

template <class T>
__global__ void scale_kernel(cuda::DeviceBags<T> bags, const T* x, T* y, std::int64_t width,
                             StepStatus* status, int op) {
  for (std::int64_t i = cuda::grid_index(); i < bags.count * width; i += cuda::grid_size())
    y[i] = x[i] * bags.scale(bags.range(i / width, status, op));
}

/// A thread takes one element of a bag's rows, from id to id.
template <class T>
__global__ void max_rows_kernel(cuda::DeviceBags<T> bags, const T* table, std::int64_t table_rows,
                                const T* dy, const T* y, T* to, std::int64_t width, StepStatus* status,
                                int op) {
  const std::int64_t used = bags.used();
  for (std::int64_t i = cuda::grid_index(); i < (bags.n - used) * width; i += cuda::grid_size())
    to[used * width + i] = T(0);
  for (std::int64_t i = cuda::grid_index(); i < bags.count * width; i += cuda::grid_size()) {
    const std::int64_t bag = i / width, column = i - bag * width;
    const cuda::BagRange range = bags.range(bag, status, op);
    bool given = false;
    for (std::int64_t k = range.begin; k < range.end; ++k) {
      const std::int64_t id = bags.id(k);
      const bool in_table = id >= 0 && id < table_rows;
      if (!in_table) cuda::report(status, op, StatusCode::IndexOutOfRange, id, table_rows);
      const bool is_it = in_table && !given && table[id * width + column] == y[i];
      to[k * width + column] = is_it ? dy[i] : T(0);
      given = given || is_it;
    }
  }
}

/// Element i of the rows of ids.
template <class X, class T>
__global__ void rows_kernel(cuda::DeviceBags<T> bags, const X* x, T* y, std::int64_t width) {
  const std::int64_t used = bags.used();
  for (std::int64_t i = cuda::grid_index(); i < bags.n * width; i += cuda::grid_size()) {
    const std::int64_t k = i / width;
    T value = 0;
    if (k < used) {
      value = static_cast<T>(x[bags.bag_of(k) * width + (i - k * width)]);
      if (bags.weights) value *= bags.weights[k];
    }
    y[i] = value;
  }
}

template <class I>
__global__ void ids_kernel(cuda::DeviceBags<float> bags, I* y, StepStatus* status, int op) {
  const std::int64_t used = bags.used();
  for (std::int64_t b = cuda::grid_index(); b < bags.count; b += cuda::grid_size())
    bags.range(b, status, op);  // for its report
  for (std::int64_t k = cuda::grid_index(); k < bags.n; k += cuda::grid_size())
    y[k] = k < used ? static_cast<I>(bags.id(k)) : I{-1};
}

__global__ void bag_of_kernel(cuda::DeviceBags<float> bags, std::int32_t first, std::int32_t* y) {
  const std::int64_t used = bags.used();
  for (std::int64_t k = cuda::grid_index(); k < bags.n; k += cuda::grid_size())
    y[k] = first + (k < used ? static_cast<std::int32_t>(bags.bag_of(k)) : 0);
}

PreparedKernel prepare_scale(const PrepareContext& c) {
  const BagInputs in = bag_inputs(c.node.attrs, false);
  return with_float(c.node.op->name, c.inputs[0].dtype, [&]<class T>() {
    PreparedKernel kernel;
    kernel.run = [in, shape = cuda::bag_shape(c, in, 1), width = c.outputs[0].shape[1]](const KernelArgs& a) {
      if (shape.sizes.bags * width == 0) return;
      cuda::launch(scale_kernel<T>, cuda::blocks_for(shape.sizes.bags * width), cuda::kThreads, 0, a.stream,
                   cuda::device_bags<T>(shape, in, a, 1), a.in<T>(0), a.out<T>(0), width, a.status, a.op);
    };
    return kernel;
  });
}

/// Of x of type X, which may be a half where rows are float32.
template <class X, class T>
PreparedKernel rows_of(const PrepareContext& c) {
  const BagInputs in = bag_inputs(c.node.attrs, false);
  PreparedKernel kernel;
  kernel.run = [in, shape = cuda::bag_shape(c, in, 1), width = c.outputs[0].shape[1]](const KernelArgs& a) {
    if (shape.sizes.ids * width == 0) return;
    cuda::launch(rows_kernel<X, T>, cuda::blocks_for(shape.sizes.ids * width), cuda::kThreads, 0, a.stream,
                 cuda::device_bags<T>(shape, in, a, 1), a.in<X>(0), a.out<T>(0), width);
  };
  return kernel;
}

PreparedKernel prepare_rows(const PrepareContext& c) {
  if (c.inputs[0].dtype == DType::Float16) return rows_of<Float16, float>(c);
  if (c.inputs[0].dtype == DType::BFloat16) return rows_of<BFloat16, float>(c);
  return with_float(c.node.op->name, c.inputs[0].dtype, [&]<class T>() { return rows_of<T, T>(c); });
}

PreparedKernel prepare_max_rows(const PrepareContext& c) {
  const BagInputs in = bag_inputs(c.node.attrs, true);
  const int dy = in.stride();
  return with_float(c.node.op->name, c.inputs[static_cast<std::size_t>(dy)].dtype, [&]<class T>() {
    PreparedKernel kernel;
    kernel.run = [in, dy, shape = cuda::bag_shape(c, in, 0), rows = c.inputs[0].shape[0],
                  width = c.outputs[0].shape[1]](const KernelArgs& a) {
      if (shape.sizes.ids * width == 0) return;
      const std::int64_t elements = std::max(shape.sizes.bags, std::int64_t{1}) * width;
      cuda::launch(max_rows_kernel<T>, cuda::blocks_for(elements), cuda::kThreads, 0, a.stream,
                   cuda::device_bags<T>(shape, in, a, 0), a.in<T>(0), rows, a.in<T>(dy), a.in<T>(dy + 1),
                   a.out<T>(0), width, a.status, a.op);
    };
    return kernel;
  });
}

const BagInputs& ids_and_offsets() {
  static const BagInputs in{.ragged = true, .has_table = false};
  return in;
}

PreparedKernel prepare_ids(const PrepareContext& c) {
  return with_index(c.node.op->name, c.inputs[0].dtype, [&]<class I>() {
    PreparedKernel kernel;
    kernel.run = [shape = cuda::bag_shape(c, ids_and_offsets(), 0)](const KernelArgs& a) {
      if (shape.sizes.ids == 0) return;
      cuda::launch(ids_kernel<I>, cuda::blocks_for(shape.sizes.ids), cuda::kThreads, 0, a.stream,
                   cuda::device_bags<float>(shape, ids_and_offsets(), a, 0), a.out<I>(0), a.status, a.op);
    };
    return kernel;
  });
}

PreparedKernel prepare_bag_of(const PrepareContext& c) {
  const bool ragged = c.inputs.size() > 1;
  cuda::DeviceBags<float> bags{.count = ragged ? c.inputs[1].shape[0] - 1 : c.inputs[0].shape[0],
                               .n = c.outputs[0].shape[0],
                               .hot = static_cast<std::int32_t>(c.attr("hot", std::int64_t{1})),
                               .is_offset64 = ragged && c.inputs[1].dtype == DType::Int64};
  PreparedKernel kernel;
  kernel.run = [bags, ragged,
                first = static_cast<std::int32_t>(c.attr("first", std::int64_t{0}))](const KernelArgs& a) {
    if (bags.n == 0) return;
    cuda::DeviceBags<float> now = bags;
    now.offsets = ragged ? a.inputs[1] : nullptr;
    cuda::launch(bag_of_kernel, cuda::blocks_for(now.n), cuda::kThreads, 0, a.stream, now, first,
                 a.out<std::int32_t>(0));
  };
  return kernel;
}

}  // namespace

void register_bag_grad_cuda(OpRegistry& registry) {
  registry.add_cuda("braid.BagScale", prepare_scale);
  registry.add_cuda("braid.BagRows", prepare_rows);
  registry.add_cuda("braid.BagMaxRows", prepare_max_rows);
  registry.add_cuda("braid.BagIds", prepare_ids);
  registry.add_cuda("braid.BagOf", prepare_bag_of);
  cuda_takes_halves({"braid.BagRows"});
}

}  // namespace braid
