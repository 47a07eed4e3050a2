// SparseToDense(indices, shape, values, default): `default` everywhere but at the indices (none, [n], or [n,
// rank]), which get `values` (one for all, or one each). Attribute validate_indices: indices out of order or
// repeated are an error. SparseTensorDenseMatMul(indices [n, 2], values [n], shape [2], b): the product of
// the sparse matrix and b, attributes adjoint_a, adjoint_b transpose them; terms are added in the order of
// the indices. braid.SparseMatMulGrad(indices, dy, b, adjoint_a, adjoint_b): the gradient of the values.
#include <fmt/format.h>

#include <algorithm>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/row_sums.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

void infer_to_dense(InferContext& c) {
  require_index_dtype(c, 0);
  c.require_same_dtype(0, 1);
  c.require_same_dtype(2, 3);
  c.require_rank(1, 1);
  c.require_rank(3, 0);
  if (c.shape(0).has_rank() && c.shape(0).rank() > 2)
    c.fail("indices must have rank <= 2, got " + c.shape(0).to_string());
  if (c.shape(2).has_rank() && c.shape(2).rank() > 1)
    c.fail("values must have rank <= 1, got " + c.shape(2).to_string());
  Shape out = Shape::unknown_rank();
  if (c.value(1)) {
    out = Shape(tensor_to_int64s(*c.value(1)));
    for (const std::int64_t d : out.dims())
      if (d < 0) c.fail("the shape has a negative dimension: " + out.to_string());
  } else if (c.shape(1).is_static()) {
    out = Shape(std::vector<std::int64_t>(static_cast<std::size_t>(c.shape(1)[0]), Shape::kUnknown));
  }
  c.output(c.dtype(2), std::move(out));
}

PreparedKernel prepare_to_dense(const PrepareContext& c) {
  const Shape out = c.outputs[0].shape, indices = c.inputs[0].shape;
  const std::int64_t n = indices.rank() == 0 ? 1 : indices[0];
  const std::int64_t depth = indices.rank() == 2 ? indices[1] : 1;
  const bool one_value = c.inputs[2].shape.rank() == 0;
  if (depth != out.rank()) c.fail(fmt::format("indices of {} numbers for shape {}", depth, out.to_string()));
  if (!one_value && c.inputs[2].shape[0] != n)
    c.fail(fmt::format("{} values for {} indices", c.inputs[2].shape[0], n));
  const bool validate = c.attr("validate_indices", true);
  return with_number_or_bool("SparseToDense", c.outputs[0].dtype, [&]<class T>() {
    return with_index("SparseToDense", c.inputs[0].dtype, [&]<class I>() {
      return serial_kernel([=, elements = out.elements(), place = place_of(c.node)](const KernelArgs& a) {
        std::fill(a.out<T>(0), a.out<T>(0) + elements, *a.in<T>(3));
        std::int64_t previous = -1;
        for (std::int64_t k = 0; k < n; ++k) {
          std::int64_t at = 0;
          for (std::int64_t d = 0; d < depth; ++d) {
            const std::int64_t index = a.in<I>(0)[k * depth + d], size = out[static_cast<int>(d)];
            if (index < 0 || index >= size)
              throw InvalidArgument(
                  fmt::format("{}: indices[{}, {}] = {} is not in [0, {})", place, k, d, index, size));
            at = at * size + index;
          }
          if (validate && at <= previous)
            throw InvalidArgument(
                fmt::format("{}: indices[{}] is {}", place, k, at == previous ? "repeated" : "out of order"));
          previous = at;
          a.out<T>(0)[at] = a.in<T>(2)[one_value ? 0 : k];
        }
      });
    });
  });
}

struct Transposes {
  bool a, b;
  explicit Transposes(const AttrMap& attrs)
      : a(attrs.get("adjoint_a", false)), b(attrs.get("adjoint_b", false)) {}
};

void infer_matmul(InferContext& c) {
  require_index_dtype(c, 0);
  require_number(c, 1);
  require_index_dtype(c, 2);
  c.require_same_dtype(1, 3);
  c.require_rank(0, 2);
  c.require_rank(1, 1);
  c.require_rank(2, 1);
  c.require_rank(3, 2);
  const Transposes t(c.node().attrs);
  std::int64_t rows = Shape::kUnknown, inner = Shape::kUnknown;
  if (c.value(2)) {
    const std::vector<std::int64_t> shape = tensor_to_int64s(*c.value(2));
    if (shape.size() != 2 || shape[0] < 0 || shape[1] < 0)
      c.fail("the shape of a must be two sizes, got " + Shape(shape).to_string());
    rows = shape[t.a ? 1 : 0];
    inner = shape[t.a ? 0 : 1];
  }
  const Shape& b = c.shape(3);
  const std::int64_t b_inner = b.has_rank() ? b[t.b ? 1 : 0] : Shape::kUnknown;
  if (inner != Shape::kUnknown && b_inner != Shape::kUnknown && inner != b_inner)
    c.fail(fmt::format("inner sizes differ: {} and {}", inner, b_inner));
  c.output(c.dtype(1), Shape{rows, b.has_rank() ? b[t.b ? 0 : 1] : Shape::kUnknown});
}

/// Fails unless both indices of each of the n pairs are in range.
template <class I>
void check_pairs(const std::string& place, const I* pairs, std::int64_t n, std::int64_t rows,
                 std::int64_t columns) {
  for (std::int64_t k = 0; k < 2 * n; ++k) {
    const std::int64_t size = k % 2 == 0 ? rows : columns;
    if (pairs[k] < 0 || pairs[k] >= size)
      throw InvalidArgument(
          fmt::format("{}: indices[{}, {}] = {} is not in [0, {})", place, k / 2, k % 2, pairs[k], size));
  }
}

PreparedKernel prepare_matmul(const PrepareContext& c) {
  const Transposes t(c.node.attrs);
  const std::int64_t n = c.inputs[0].shape[0], rows = c.outputs[0].shape[0], width = c.outputs[0].shape[1];
  const std::int64_t inner = c.inputs[3].shape[t.b ? 1 : 0];
  const std::int64_t b_row = t.b ? 1 : width, b_column = t.b ? inner : 1;
  const std::size_t row_bytes = (static_cast<std::size_t>(n) * sizeof(std::int64_t) + 63) / 64 * 64;
  return with_number("SparseTensorDenseMatMul", c.inputs[1].dtype, [&]<class T>() {
    return with_index("SparseTensorDenseMatMul", c.inputs[0].dtype, [&]<class I>() {
      PreparedKernel kernel;
      kernel.scratch_bytes = row_bytes + IndexGroups::scratch_bytes(n);
      kernel.run = [=, pool = &c.pool, place = place_of(c.node)](const KernelArgs& a) {
        const I* pairs = a.in<I>(0);
        check_pairs(place, pairs, n, t.a ? inner : rows, t.a ? rows : inner);
        auto* row = static_cast<std::int64_t*>(a.scratch);
        for (std::int64_t k = 0; k < n; ++k) row[k] = pairs[2 * k + (t.a ? 1 : 0)];
        const IndexGroups groups(row, n, rows, static_cast<char*>(a.scratch) + row_bytes);
        T* y = a.out<T>(0);
        std::fill(y, y + rows * width, T{});
        pool->parallel_range(groups.size(), row_grain(width), [&](std::int64_t first, std::int64_t last) {
          for (std::int64_t g = first; g < last; ++g)
            for (std::int64_t e = groups.begin(g); e < groups.end(g); ++e) {
              const std::int64_t k = groups.position(e);
              const T value = a.in<T>(1)[k];
              const T* b = a.in<T>(3) + pairs[2 * k + (t.a ? 0 : 1)] * b_row;
              T* out = y + groups.index(g) * width;
              for (std::int64_t j = 0; j < width; ++j) out[j] += value * b[j * b_column];
            }
        });
      };
      return kernel;
    });
  });
}

void matmul_gradient(GradContext& c) {
  const Transposes t(c.node().attrs);
  const ValueRef b = c.input(3);
  c.set_grad(
      1, c.op("braid.SparseMatMulGrad", {c.input(0), c.grad(), b}, {{"adjoint_a", t.a}, {"adjoint_b", t.b}}));
  const ValueRef db = c.op("SparseTensorDenseMatMul", {c.input(0), c.input(1), c.input(2), c.grad()},
                           {{"adjoint_a", !t.a}, {"adjoint_b", false}});
  const auto swapped = c.constant(Tensor::from<std::int32_t>({2}, std::vector<std::int32_t>{1, 0}));
  c.set_grad(3, t.b ? c.op("Transpose", {db, swapped}) : db);
}

void infer_values_grad(InferContext& c) {
  c.output(c.dtype(1), Shape{c.shape(0).has_rank() ? c.shape(0)[0] : Shape::kUnknown});
}

PreparedKernel prepare_values_grad(const PrepareContext& c) {
  const Transposes t(c.node.attrs);
  const std::int64_t n = c.inputs[0].shape[0], width = c.inputs[1].shape[1];
  const std::int64_t b_row = t.b ? 1 : c.inputs[2].shape[1], b_column = t.b ? c.inputs[2].shape[1] : 1;
  return with_number("braid.SparseMatMulGrad", c.inputs[1].dtype, [&]<class T>() {
    return with_index("braid.SparseMatMulGrad", c.inputs[0].dtype, [&]<class I>() {
      return parallel_kernel(c, n, row_grain(width),
                             [=](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
                               for (std::int64_t k = begin; k < end; ++k) {
                                 const T* dy = a.in<T>(1) + a.in<I>(0)[2 * k + (t.a ? 1 : 0)] * width;
                                 const T* b = a.in<T>(2) + a.in<I>(0)[2 * k + (t.a ? 0 : 1)] * b_row;
                                 T sum = 0;
                                 for (std::int64_t j = 0; j < width; ++j) sum += dy[j] * b[j * b_column];
                                 a.out<T>(0)[k] = sum;
                               }
                             });
    });
  });
}

}  // namespace

void register_sparse_dense(OpRegistry& registry) {
  registry.add({.name = "SparseToDense",
                .traits = moves().on_string_ids(),
                .min_inputs = 4,
                .max_inputs = 4,
                .infer = infer_to_dense,
                .no_gradient_reason = "TensorFlow gives it none",
                .cpu = prepare_to_dense,
                .shape_values = {1}});
  registry.add({.name = "SparseTensorDenseMatMul",
                .traits = computes(),
                .min_inputs = 4,
                .max_inputs = 4,
                .infer = infer_matmul,
                .gradient = matmul_gradient,
                .cpu = prepare_matmul,
                .shape_values = {2}});
  registry.add({.name = "braid.SparseMatMulGrad",
                .traits = computes(),
                .min_inputs = 3,
                .max_inputs = 3,
                .infer = infer_values_grad,
                .no_gradient_reason = "it is part of a gradient; second derivatives are not made",
                .cpu = prepare_values_grad});
}

}  // namespace braid
