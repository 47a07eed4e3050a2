// TopKV2(x [..., n], k) and TopK (k is an attribute): the k largest elements of each row, largest first, and
// their indices; of equal ones the first comes first, a NaN counts as largest. Attribute sorted = false
// allows any order and gets this one. braid.TopKGrad(dy, indices, like): zeros in the shape of `like` with dy
// at those indices of each row.
#include <fmt/format.h>

#include <algorithm>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/scalar_formulas.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

void infer(InferContext& c) {
  require_number(c, 0);
  require_min_rank(c, 0, 1);
  std::int64_t k = c.inputs() > 1 ? Shape::kUnknown : c.attr("k", std::int64_t{-1});
  if (c.inputs() > 1) {
    require_index_dtype(c, 1);
    c.require_rank(1, 0);
    if (c.value(1)) k = tensor_to_int64s(*c.value(1))[0];
  }
  if (k < 0 && (c.inputs() == 1 || c.value(1))) c.fail(fmt::format("k is {}", k));
  const DType index = c.attr("index_type", DType::Int32);
  if (index != DType::Int32 && index != DType::Int64) c.fail("index_type must be int32 or int64");
  Shape out = c.shape(0);
  if (out.has_rank()) {
    const std::int64_t n = out[out.rank() - 1];
    if (n != Shape::kUnknown && k > n) c.fail(fmt::format("k is {}, the last axis has {} elements", k, n));
    out.set_dim(out.rank() - 1, k);
  }
  c.output(c.dtype(0), out);
  c.output(index, out);
}

template <class T, class I>
struct Before {
  const T* x;
  bool operator()(I a, I b) const { return formula::before(x[a], a, x[b], b); }
};

/// The indices are a heap with the weakest of the best k in front, in the output itself.
template <class T, class I>
void top_of_row(const T* x, std::int64_t n, std::int64_t k, T* values, I* indices) {
  if (k == 0) return;
  const Before<T, I> before{x};
  for (std::int64_t i = 0; i < k; ++i) indices[i] = static_cast<I>(i);
  std::make_heap(indices, indices + k, before);
  for (std::int64_t i = k; i < n; ++i) {
    if (!before(static_cast<I>(i), indices[0])) continue;
    std::pop_heap(indices, indices + k, before);
    indices[k - 1] = static_cast<I>(i);
    std::push_heap(indices, indices + k, before);
  }
  std::sort_heap(indices, indices + k, before);
  for (std::int64_t i = 0; i < k; ++i) values[i] = x[indices[i]];
}

PreparedKernel prepare(const PrepareContext& c) {
  const Shape &in = c.inputs[0].shape, &out = c.outputs[0].shape;
  const std::int64_t n = in[in.rank() - 1], k = out[out.rank() - 1];
  std::int64_t rows = 1;
  for (int d = 0; d < in.rank() - 1; ++d) rows *= in[d];
  return with_number("TopKV2", c.inputs[0].dtype, [&]<class T>() {
    return with_index("TopKV2", c.outputs[1].dtype, [&]<class I>() {
      return parallel_kernel(
          c, rows, row_grain(8 * n), [n, k](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
            for (std::int64_t r = begin; r < end; ++r)
              top_of_row(a.in<T>(0) + r * n, n, k, a.out<T>(0) + r * k, a.out<I>(1) + r * k);
          });
    });
  });
}

void gradient(GradContext& c) {
  if (c.grad(0).valid()) c.set_grad(0, c.op("braid.TopKGrad", {c.grad(0), c.output(1), c.input(0)}));
}

Cost cost(const InferContext& c, std::span<const OutputInfo> outputs) {
  return {4 * known_elements(c.shape(0)), traffic_bytes(c, outputs)};
}

void infer_grad(InferContext& c) {
  require_index_dtype(c, 1);
  merged_shape(c, 0, 1);
  c.output(c.dtype(0), c.shape(2));
}

PreparedKernel prepare_grad(const PrepareContext& c) {
  const Shape &dy = c.inputs[0].shape, &out = c.outputs[0].shape;
  const std::int64_t n = out[out.rank() - 1], k = dy[dy.rank() - 1];
  std::int64_t rows = 1;
  for (int d = 0; d < out.rank() - 1; ++d) rows *= out[d];
  return with_number("braid.TopKGrad", c.inputs[0].dtype, [&]<class T>() {
    return with_index("braid.TopKGrad", c.inputs[1].dtype, [&]<class I>() {
      return parallel_kernel(c, rows, row_grain(n),
                             [n, k](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
                               std::fill(a.out<T>(0) + begin * n, a.out<T>(0) + end * n, T{});
                               for (std::int64_t r = begin; r < end; ++r)
                                 for (std::int64_t i = r * k; i < (r + 1) * k; ++i)
                                   a.out<T>(0)[r * n + a.in<I>(1)[i]] = a.in<T>(0)[i];
                             });
    });
  });
}

}  // namespace

void register_top_k(OpRegistry& registry) {
  for (const int inputs : {1, 2}) {
    const std::vector<TypeAttr> types =
        inputs == 1 ? std::vector<TypeAttr>{{"T", 0}} : std::vector<TypeAttr>{{"T", 0}, {"Tk", 1}};
    registry.add({.name = inputs == 1 ? "TopK" : "TopKV2",
                  .traits = computes().data_outputs(1).names({"values", "indices"}).type_attrs(types),
                  .min_inputs = inputs,
                  .max_inputs = inputs,
                  .infer = infer,
                  .gradient = gradient,
                  .cost = cost,
                  .cpu = prepare,
                  .shape_values = inputs == 1 ? std::vector<int>{} : std::vector<int>{1}});
  }
  registry.add({.name = "braid.TopKGrad",
                .traits = computes(),
                .min_inputs = 3,
                .max_inputs = 3,
                .infer = infer_grad,
                .no_gradient_reason = "it is part of a gradient; second derivatives are not made",
                .cpu = prepare_grad,
                .shape_only = {2}});
}

}  // namespace braid
