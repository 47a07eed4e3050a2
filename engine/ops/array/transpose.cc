// Transpose(x, perm): output axis i is input axis perm[i]. InvertPermutation(p): q[p[i]] = i.
// Gradient of Transpose: the transposition by the inverse permutation.
#include <fmt/format.h>

#include "engine/ops/common/box_plan.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

bool is_permutation(const std::vector<std::int64_t>& perm) {
  std::vector<bool> seen(perm.size());
  for (std::int64_t p : perm) {
    if (p < 0 || p >= static_cast<std::int64_t>(perm.size()) || seen[static_cast<std::size_t>(p)])
      return false;
    seen[static_cast<std::size_t>(p)] = true;
  }
  return true;
}

void infer_transpose(InferContext& c) {
  c.require_rank(1, 1);
  require_index_dtype(c, 1);
  const Shape& in = c.shape(0);
  const Tensor* value = c.value(1);
  if (!value) {
    Shape out = Shape::unknown_rank();
    if (in.has_rank())
      out = Shape(std::vector<std::int64_t>(static_cast<std::size_t>(in.rank()), Shape::kUnknown));
    return c.output(c.dtype(0), out);
  }
  const std::vector<std::int64_t> perm = tensor_to_int64s(*value);
  if (!is_permutation(perm)) c.fail("perm must hold every axis once, got " + Shape(perm).to_string());
  if (in.has_rank() && in.rank() != static_cast<int>(perm.size()))
    c.fail(fmt::format("perm has {} axes, the input has shape {}", perm.size(), in.to_string()));
  std::vector<std::int64_t> dims;
  for (std::int64_t p : perm) dims.push_back(in.has_rank() ? in[static_cast<int>(p)] : Shape::kUnknown);
  c.output(c.dtype(0), Shape(std::move(dims)));
}

void transpose_gradient(GradContext& c) {
  c.set_grad(0, c.op("Transpose", {c.grad(), c.op("InvertPermutation", {c.input(1)})}));
}

void infer_invert_permutation(InferContext& c) {
  c.require_rank(0, 1);
  require_index_dtype(c, 0);
  infer_same_as_first(c);
}

PreparedKernel prepare_invert_permutation(const PrepareContext& c) {
  const std::int64_t n = c.inputs[0].shape[0];
  const std::string place = place_of(c.node);
  return with_index("InvertPermutation", c.inputs[0].dtype, [&]<class T>() {
    return serial_kernel([n, place](const KernelArgs& a) {
      const T* p = a.in<T>(0);
      T* q = a.out<T>(0);
      std::fill(q, q + n, T{-1});
      for (std::int64_t i = 0; i < n; ++i) {
        if (p[i] < 0 || p[i] >= n || q[p[i]] != -1)
          throw InvalidArgument(fmt::format("{}: element {} = {} makes it no permutation", place, i, p[i]));
        q[p[i]] = static_cast<T>(i);
      }
    });
  });
}

}  // namespace

BoxPlan plans::transpose(const PrepareContext& c) {
  const std::vector<std::int64_t> perm = tensor_to_int64s(*c.values[1]);
  const std::vector<std::int64_t> src = row_major_strides(c.inputs[0].shape);
  const std::vector<std::int64_t> dst = row_major_strides(c.outputs[0].shape);
  std::vector<BoxAxis> axes;
  for (std::size_t i = 0; i < perm.size(); ++i)
    axes.push_back({c.outputs[0].shape[static_cast<int>(i)], src[static_cast<std::size_t>(perm[i])], dst[i]});
  return {{{BoxCopy(axes, 0, 0, dtype_size(c.inputs[0].dtype)), 0, 0}}};
}

void register_transpose(OpRegistry& registry) {
  registry.add({.name = "Transpose",
                .traits = moves().any_type().on_string_ids().type_attrs({{"T", 0}, {"Tperm", 1}}),
                .min_inputs = 2,
                .max_inputs = 2,
                .infer = infer_transpose,
                .gradient = transpose_gradient,
                .cpu = prepare_boxes<plans::transpose>,
                .shape_values = {1}});
  registry.add({.name = "InvertPermutation",
                .traits = computes(),
                .min_inputs = 1,
                .max_inputs = 1,
                .infer = infer_invert_permutation,
                .no_gradient_reason = "its output is integers",
                .cpu = prepare_invert_permutation});
}

}  // namespace braid
