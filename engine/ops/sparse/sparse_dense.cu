// CUDA kernels of SparseToDense and SparseTensorDenseMatMul (common/cuda/row_groups.h): an update of the
// product is a row of b times its value, added in the order of the indices. Indices that do not rise are
// reported as one that is not below the next.
#include "engine/ops/common/cuda/fill.cuh"
#include "engine/ops/common/cuda/nd_rows.cuh"
#include "engine/ops/common/cuda/reduce.cuh"
#include "engine/ops/common/cuda/row_groups.h"
#include "engine/ops/common/cuda/unit.cuh"

namespace braid {
namespace {

constexpr std::int64_t kMostRows = (1LL << 31) - 2;  // of the sort's keys and positions

// ------------------------------------------------------------------------------------------------- to dense

/// Indices that are none or a vector are vectors of one number each.
Shape index_vectors(const Shape& indices) {
  if (indices.rank() == 2) return indices;
  return Shape{indices.rank() == 0 ? 1 : indices[0], 1};
}

/// REQUIRES: indices that rise, or a report.
template <class T, class I>
__global__ void to_dense_kernel(const I* indices, const T* values, std::int64_t value_stride, T* out,
                                cuda::NdRows to, StepStatus* status, int op) {
  for (std::int64_t k = cuda::grid_index(); k < to.count; k += cuda::grid_size()) {
    const std::int64_t at = to.row(indices, k, status, op);
    if (at >= to.rows) continue;
    if (k + 1 < to.count) {
      const std::int64_t next = to.row(indices, k + 1, status, op);
      if (next <= at) {
        cuda::report(status, op, StatusCode::IndexOutOfRange, at, next);
        continue;
      }
    }
    out[at] = values[k * value_stride];
  }
}

PreparedKernel prepare_to_dense(const PrepareContext& c) {
  const Shape &out = c.outputs[0].shape, indices = index_vectors(c.inputs[0].shape);
  const std::int64_t value_stride = c.inputs[2].shape.rank() == 0 ? 0 : 1, elements = out.elements();
  if (indices[1] != out.rank())
    c.fail("indices of " + std::to_string(indices[1]) + " numbers for shape " + out.to_string());
  if (value_stride != 0 && c.inputs[2].shape[0] != indices[0])
    c.fail(std::to_string(c.inputs[2].shape[0]) + " values for " + std::to_string(indices[0]) + " indices");
  const cuda::NdRows to(NdAddressing(out, indices));
  if (!c.attr("validate_indices", true)) {  // the last of equal ones stays
    const cuda::RowUpdate update(c, {.dtype = c.outputs[0].dtype,
                                     .updates = to.count,
                                     .rows = to.rows,
                                     .width = 1,
                                     .reduce = cuda::RowReduce::Last});
    return with_number("SparseToDense", c.outputs[0].dtype, [&]<class T>() {
      PreparedKernel kernel;
      kernel.scratch_bytes = update.scratch_bytes();
      kernel.run = [=, index_type = c.inputs[0].dtype](const KernelArgs& a) {
        cuda::fill(a.stream, a.out<T>(0), elements, T{}, a.in<T>(3));
        cuda::make_nd_entries(a, to, a.inputs[0], index_type, update.entries(a.scratch));
        update.apply(a.scratch, a.stream,
                     {.data = a.inputs[2], .row_stride = value_stride, .column_stride = 0}, a.outputs[0]);
      };
      return kernel;
    });
  }
  return with_index("SparseToDense", c.inputs[0].dtype, [&]<class I>() {
    return cuda::with_element_of(dtype_size(c.outputs[0].dtype), [&]<class T>() {
      PreparedKernel kernel;
      kernel.run = [=](const KernelArgs& a) {
        cuda::fill(a.stream, a.out<T>(0), elements, T{}, a.in<T>(3));
        if (to.count != 0)
          cuda::launch(to_dense_kernel<T, I>, cuda::blocks_for(to.count), cuda::kThreads, 0, a.stream,
                       a.in<I>(0), a.in<T>(2), value_stride, a.out<T>(0), to, a.status, a.op);
      };
      return kernel;
    });
  });
}

bool supports_to_dense(const Node& node, std::span<const OutputInfo> inputs) {
  const Shape& out = node.outputs[0].shape;
  if (!cuda::NdRows::supports(out)) return false;
  if (node.attrs.get("validate_indices", true)) return dtype_size(inputs[2].dtype) != 0;
  return cuda::is_row_type(inputs[2].dtype) && out.elements() <= kMostRows;
}

// --------------------------------------------------------------------------------------------------- product

struct Transposes {
  bool a, b;
  explicit Transposes(const AttrMap& attrs)
      : a(attrs.get("adjoint_a", false)), b(attrs.get("adjoint_b", false)) {}
};

/// The entries of the products, and the row of b that each takes. What is out of range is reported and left
/// out.
template <class I>
__global__ void product_entries_kernel(const I* pairs, std::int64_t n, bool transposed, std::int64_t rows,
                                       std::int64_t inner, std::uint64_t* entries, std::int64_t* sources,
                                       StepStatus* status, int op) {
  for (std::int64_t k = cuda::grid_index(); k < n; k += cuda::grid_size()) {
    auto row = static_cast<std::int64_t>(pairs[2 * k + (transposed ? 1 : 0)]);
    const auto source = static_cast<std::int64_t>(pairs[2 * k + (transposed ? 0 : 1)]);
    if (row < 0 || row >= rows) {
      cuda::report(status, op, StatusCode::IndexOutOfRange, row, rows);
      row = rows;
    } else if (source < 0 || source >= inner) {
      cuda::report(status, op, StatusCode::IndexOutOfRange, source, inner);
      row = rows;
    }
    entries[k] = static_cast<std::uint64_t>(row) << 32 | static_cast<std::uint64_t>(k);
    sources[k] = source;
  }
}

PreparedKernel prepare_product(const PrepareContext& c) {
  const Transposes t(c.node.attrs);
  const std::int64_t n = c.inputs[0].shape[0], rows = c.outputs[0].shape[0], width = c.outputs[0].shape[1];
  const std::int64_t inner = c.inputs[3].shape[t.b ? 1 : 0];
  const auto bytes =
      static_cast<std::uint64_t>(c.outputs[0].shape.elements()) * dtype_size(c.outputs[0].dtype);
  const cuda::RowUpdate update(c, {.dtype = c.outputs[0].dtype, .updates = n, .rows = rows, .width = width});
  return with_index("SparseTensorDenseMatMul", c.inputs[0].dtype, [&]<class I>() {
    PreparedKernel kernel;
    kernel.scratch_bytes = update.scratch_bytes() + static_cast<std::size_t>(n) * sizeof(std::int64_t);
    kernel.run = [=, device = c.accelerator](const KernelArgs& a) {
      if (bytes == 0) return;
      device->fill_zero(a.outputs[0], bytes, a.stream);
      if (n == 0) return;
      auto* sources = reinterpret_cast<std::int64_t*>(static_cast<char*>(a.scratch) + update.scratch_bytes());
      cuda::launch(product_entries_kernel<I>, cuda::blocks_for(n), cuda::kThreads, 0, a.stream, a.in<I>(0), n,
                   t.a, rows, inner, update.entries(a.scratch), sources, a.status, a.op);
      update.apply(a.scratch, a.stream,
                   {.data = a.inputs[3],
                    .row_stride = t.b ? 1 : width,
                    .column_stride = t.b ? inner : 1,
                    .row_of = sources,
                    .scale = a.inputs[1],
                    .scales_updates = true},
                   a.outputs[0]);
    };
    return kernel;
  });
}

bool supports_product(const Node& node, std::span<const OutputInfo> inputs) {
  return cuda::is_row_type(inputs[1].dtype) && inputs[0].shape[0] <= kMostRows &&
         node.outputs[0].shape[0] <= kMostRows;
}

/// A warp a value: row of dy times row of b. A pair out of range, which the product reports, gives 0.
template <class T, class I>
__global__ void values_grad_kernel(const I* pairs, const T* dy, const T* b, T* out, std::int64_t n,
                                   std::int64_t width, bool transposed, std::int64_t rows, std::int64_t inner,
                                   std::int64_t b_row, std::int64_t b_column) {
  using C = reduce::Sum::Compute<T>;
  const std::int64_t lane = threadIdx.x % 32;
  for (std::int64_t k = cuda::grid_index() / 32; k < n; k += cuda::grid_size() / 32) {
    const auto row = static_cast<std::int64_t>(pairs[2 * k + (transposed ? 1 : 0)]);
    const auto source = static_cast<std::int64_t>(pairs[2 * k + (transposed ? 0 : 1)]);
    C sum = 0;
    if (row >= 0 && row < rows && source >= 0 && source < inner)
      for (std::int64_t j = lane; j < width; j += 32)
        sum += static_cast<C>(dy[row * width + j]) * static_cast<C>(b[source * b_row + j * b_column]);
    sum = cuda::warp_reduce<reduce::Sum>(sum);
    if (lane == 0) out[k] = static_cast<T>(sum);
  }
}

PreparedKernel prepare_values_grad(const PrepareContext& c) {
  const Transposes t(c.node.attrs);
  const Shape& b = c.inputs[2].shape;
  const std::int64_t n = c.inputs[0].shape[0], rows = c.inputs[1].shape[0], width = c.inputs[1].shape[1];
  const std::int64_t inner = b[t.b ? 1 : 0], b_row = t.b ? 1 : b[1], b_column = t.b ? b[1] : 1;
  return with_number("braid.SparseMatMulGrad", c.inputs[1].dtype, [&]<class T>() {
    return with_index("braid.SparseMatMulGrad", c.inputs[0].dtype, [&]<class I>() {
      PreparedKernel kernel;
      kernel.run = [=](const KernelArgs& a) {
        if (n != 0)
          cuda::launch(values_grad_kernel<T, I>, cuda::blocks_for(n * 32), cuda::kThreads, 0, a.stream,
                       a.in<I>(0), a.in<T>(1), a.in<T>(2), a.out<T>(0), n, width, t.a, rows, inner, b_row,
                       b_column);
      };
      return kernel;
    });
  });
}

}  // namespace

void register_sparse_dense_cuda(OpRegistry& registry) {
  registry.add_cuda("SparseToDense", prepare_to_dense, supports_to_dense);
  registry.add_cuda("SparseTensorDenseMatMul", prepare_product, supports_product);
  registry.add_cuda("braid.SparseMatMulGrad", prepare_values_grad);
}

}  // namespace braid
