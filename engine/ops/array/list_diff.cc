// ListDiff(x [n], y [m]) -> out, idx: the elements of x that are not in y, in their order and as often as
// they stand in x, and where each stands. How many there are must be known before the program runs, from both
// values. TensorFlow's gradient of Prod is made of it, on the axes of a tensor.
#include <algorithm>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

/// Calls use(position) for each element of x that is not among the m of `sorted`; NaN equals nothing.
template <class T, class Use>
void for_left(const T* x, std::int64_t n, const T* sorted, std::int64_t m, Use use) {
  for (std::int64_t i = 0; i < n; ++i)
    if (x[i] != x[i] || !std::binary_search(sorted, sorted + m, x[i])) use(i);
}

/// The elements that are numbers, in order.
template <class T>
std::int64_t sort_numbers(T* y, std::int64_t m) {
  T* end = std::remove_if(y, y + m, [](T value) { return value != value; });
  std::sort(y, end);
  return end - y;
}

std::int64_t count_left(const Tensor& x, const Tensor& y) {
  return with_number_or_bool("ListDiff", x.dtype(), [&]<class T>() {
    Tensor copy(y.dtype(), y.shape());
    T* sorted = reinterpret_cast<T*>(copy.raw());
    std::copy_n(reinterpret_cast<const T*>(y.raw()), y.elements(), sorted);
    const std::int64_t m = sort_numbers(sorted, y.elements());
    std::int64_t count = 0;
    for_left(reinterpret_cast<const T*>(x.raw()), x.elements(), sorted, m, [&](std::int64_t) { ++count; });
    return count;
  });
}

void infer(InferContext& c) {
  c.require_same_dtype(0, 1);
  for (int i : {0, 1}) c.require_rank(i, 1);
  if (dtype_size(c.dtype(0)) == 0 || c.dtype(0) == DType::Float16 || c.dtype(0) == DType::BFloat16)
    c.fail("does not take " + std::string(dtype_name(c.dtype(0))));
  const DType index = c.attr("out_idx", DType::Int32);
  if (index != DType::Int32 && index != DType::Int64) c.fail("out_idx must be int32 or int64");
  const Shape shape{c.value(0) && c.value(1) ? count_left(*c.value(0), *c.value(1)) : Shape::kUnknown};
  c.output(c.dtype(0), shape);
  c.output(index, shape);
}

PreparedKernel prepare(const PrepareContext& c) {
  const std::int64_t n = c.inputs[0].shape[0], m = c.inputs[1].shape[0];
  return with_number_or_bool("ListDiff", c.inputs[0].dtype, [&]<class T>() {
    return with_index("ListDiff", c.outputs[1].dtype, [&]<class I>() {
      PreparedKernel kernel;
      kernel.scratch_bytes = static_cast<std::size_t>(m) * sizeof(T);
      kernel.run = [n, m](const KernelArgs& a) {
        T* sorted = static_cast<T*>(a.scratch);
        std::copy_n(a.in<T>(1), m, sorted);
        const T* x = a.in<T>(0);
        std::int64_t at = 0;
        for_left(x, n, sorted, sort_numbers(sorted, m), [&](std::int64_t i) {
          a.out<T>(0)[at] = x[i];
          a.out<I>(1)[at++] = static_cast<I>(i);
        });
      };
      return kernel;
    });
  });
}

}  // namespace

void register_list_diff(OpRegistry& registry) {
  registry.add({.name = "ListDiff",
                .traits = computes().on_string_ids().data_outputs(1).names({"out", "idx"}),
                .min_inputs = 2,
                .max_inputs = 2,
                .infer = infer,
                .no_gradient_reason = "which elements are equal decides its shape",
                .cpu = prepare,
                .shape_values = {0, 1}});
}

}  // namespace braid
