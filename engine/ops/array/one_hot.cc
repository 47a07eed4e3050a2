// OneHot(indices, depth, on_value, off_value): a new axis of `depth` (attribute axis, -1: the last) that
// holds on_value at the index and off_value elsewhere; an index outside [0, depth) gives off_value
// everywhere.
#include <fmt/format.h>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

int new_axis(const InferContext& c, int rank) {
  return normalized_axis(c, c.attr("axis", std::int64_t{-1}), rank + 1);
}

void infer(InferContext& c) {
  require_dtype(c, 0, {DType::UInt8, DType::Int32, DType::Int64});
  for (int i : {1, 2, 3}) c.require_rank(i, 0);
  c.require_same_dtype(2, 3);
  const Shape& indices = c.shape(0);
  if (!indices.has_rank()) return c.output(c.dtype(2), Shape::unknown_rank());
  std::vector<std::int64_t> dims(indices.dims().begin(), indices.dims().end());
  const std::int64_t depth = c.value(1) ? tensor_to_int64s(*c.value(1))[0] : Shape::kUnknown;
  if (c.value(1) && depth < 0) c.fail(fmt::format("depth is {}", depth));
  dims.insert(dims.begin() + new_axis(c, indices.rank()), depth);
  c.output(c.dtype(2), Shape(std::move(dims)));
}

template <class T, class I>
PreparedKernel kernel(const PrepareContext& c) {
  const Shape& out = c.outputs[0].shape;
  std::int64_t axis = c.attr("axis", std::int64_t{-1});
  if (axis < 0) axis += out.rank();
  std::int64_t inner = 1;
  for (int i = static_cast<int>(axis) + 1; i < out.rank(); ++i) inner *= out[i];
  const std::int64_t depth = out[static_cast<int>(axis)];
  const std::int64_t slices = inner == 0 ? 0 : c.inputs[0].shape.elements() / inner;
  return parallel_kernel(c, slices, row_grain(depth * inner),
                         [inner, depth](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
                           const T on = a.in<T>(2)[0], off = a.in<T>(3)[0];
                           for (std::int64_t s = begin; s < end; ++s) {
                             T* out = a.out<T>(0) + s * depth * inner;
                             std::fill(out, out + depth * inner, off);
                             for (std::int64_t i = 0; i < inner; ++i) {
                               const auto index = static_cast<std::int64_t>(a.in<I>(0)[s * inner + i]);
                               if (index >= 0 && index < depth) out[index * inner + i] = on;
                             }
                           }
                         });
}

PreparedKernel prepare(const PrepareContext& c) {
  return with_number_or_bool("OneHot", c.inputs[2].dtype, [&]<class T>() {
    if (c.inputs[0].dtype == DType::UInt8) return kernel<T, std::uint8_t>(c);
    return with_index("OneHot", c.inputs[0].dtype, [&]<class I>() { return kernel<T, I>(c); });
  });
}

}  // namespace

void register_one_hot(OpRegistry& registry) {
  registry.add({.name = "OneHot",
                .traits = computes().type_attrs({{"T", 2}, {"TI", 0}}),
                .min_inputs = 4,
                .max_inputs = 4,
                .infer = infer,
                .no_gradient_reason = "it is constant in its indices; its on and off values are settings",
                .cpu = prepare,
                .shape_values = {1}});
}

}  // namespace braid
