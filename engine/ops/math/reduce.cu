// CUDA kernels of the reductions: common/cuda/axis_reduce.h.
#include "engine/ops/common/cuda/axis_reduce.h"
#include "engine/ops/common/cuda/half_sums.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/common/joined_axes.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

template <class Op>
PreparedKernel prepare(const PrepareContext& c) {
  const Shape& shape = c.inputs[0].shape;
  const std::vector<int> axes = known_axes(c, 1, shape.rank());
  return with_number(c.node.op->name, c.inputs[0].dtype,
                     [&]<class T>() { return cuda::prepare_reduce<Op, T>(c, shape, axes); });
}

PreparedKernel prepare_sum(const PrepareContext& c) {
  const Shape& shape = c.inputs[0].shape;
  if (!is_half(c.inputs[0].dtype)) return prepare<reduce::Sum>(c);
  return cuda::prepare_half_sum(c, shape, known_axes(c, 1, shape.rank()), prepare<reduce::Sum>);
}

PreparedKernel prepare_mean(const PrepareContext& c) {
  const Shape& shape = c.inputs[0].shape;
  const std::vector<int> axes = known_axes(c, 1, shape.rank());
  const std::int64_t count = reduced_count(shape, axes);
  if (is_half(c.inputs[0].dtype))
    return cuda::prepare_half_sum(c, shape, axes, prepare_mean, static_cast<float>(count));
  return with_number("Mean", c.inputs[0].dtype, [&]<class T>() {
    return cuda::prepare_reduce<reduce::Sum, T>(c, shape, axes, mean_divisor<T>(count));
  });
}

template <class Op>
PreparedKernel prepare_bool(const PrepareContext& c) {
  const Shape& shape = c.inputs[0].shape;
  return cuda::prepare_reduce<Op, std::uint8_t>(c, shape, known_axes(c, 1, shape.rank()));
}

}  // namespace

void register_reduce_cuda(OpRegistry& registry) {
  const auto add = [&registry](const char* name, PreparedKernel (*prepare)(const PrepareContext&)) {
    registry.add_cuda(name, prepare, [](const Node&, std::span<const OutputInfo> inputs) {
      return cuda::reducible(inputs[0]);
    });
  };
  add("Sum", prepare_sum);
  cuda_takes_halves({"Sum", "Mean"});
  add("Mean", prepare_mean);
  add("Max", prepare<reduce::Max>);
  add("Min", prepare<reduce::Min>);
  add("Prod", prepare<reduce::Prod>);
  add("All", prepare_bool<reduce::And>);
  add("Any", prepare_bool<reduce::Or>);
}

}  // namespace braid
