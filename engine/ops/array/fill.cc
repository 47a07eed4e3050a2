// Fill(dims, value), ZerosLike(x), OnesLike(x), Range(start, limit, delta), LinSpace(start, stop, num) and
// Empty(shape) (zeros, whatever attribute init says): tensors made of little.
// Of the input of ZerosLike and OnesLike only type and shape are used. Gradient of Fill: the sum.
#include <fmt/format.h>

#include <cmath>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

void infer_fill(InferContext& c) {
  c.require_rank(0, 1);
  c.require_rank(1, 0);
  require_index_dtype(c, 0);
  Shape shape = Shape::unknown_rank();
  if (c.value(0)) {
    shape = Shape(tensor_to_int64s(*c.value(0)));
    for (std::int64_t d : shape.dims())
      if (d < 0) c.fail("the shape has a negative dimension: " + shape.to_string());
  } else if (c.shape(0).is_static()) {
    shape = Shape(std::vector<std::int64_t>(static_cast<std::size_t>(c.shape(0)[0]), Shape::kUnknown));
  }
  c.output(c.dtype(1), std::move(shape));
}

/// value(args) in all elements of output 0.
template <class T, class Value>
PreparedKernel fill_kernel(const PrepareContext& c, Value value) {
  return parallel_kernel(c, c.outputs[0].shape.elements(), kElementGrain,
                         [value](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
                           std::fill(a.out<T>(0) + begin, a.out<T>(0) + end, value(a));
                         });
}

PreparedKernel prepare_fill(const PrepareContext& c) {
  return with_number_or_bool("Fill", c.outputs[0].dtype, [&]<class T>() {
    return fill_kernel<T>(c, [](const KernelArgs& a) { return a.in<T>(1)[0]; });
  });
}

template <int kValue>
PreparedKernel prepare_like(const PrepareContext& c) {
  return with_number_or_bool("ZerosLike", c.outputs[0].dtype, [&]<class T>() {
    return fill_kernel<T>(c, [](const KernelArgs&) { return static_cast<T>(kValue); });
  });
}

void fill_gradient(GradContext& c) {
  const ValueRef all =
      c.op("Reshape", {c.grad(), c.constant(Tensor::from<std::int32_t>({1}, std::vector<std::int32_t>{-1}))});
  const ValueRef axis = c.constant(Tensor::from<std::int32_t>({1}, std::vector<std::int32_t>{0}));
  c.set_grad(1, c.op("Sum", {all, axis}));
}

/// Elements of [start, limit) in steps of delta; -1 when the three do not make a range.
template <class T>
std::int64_t range_count(T start, T limit, T delta) {
  if (delta == 0 || (delta > 0 && start > limit) || (delta < 0 && start < limit)) return -1;
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<std::int64_t>(std::ceil(std::abs((limit - start) / delta)));
  } else {
    const T span = limit - start;
    return span / delta + (span % delta != 0 ? 1 : 0);
  }
}

void infer_range(InferContext& c) {
  require_number(c, 0);
  for (int i = 0; i < 3; ++i) {
    c.require_rank(i, 0);
    c.require_same_dtype(0, i);
  }
  if (!c.value(0) || !c.value(1) || !c.value(2)) return c.output(c.dtype(0), Shape{Shape::kUnknown});
  with_number("Range", c.dtype(0), [&]<class T>() {
    const T start = c.value(0)->data<T>()[0], limit = c.value(1)->data<T>()[0],
            delta = c.value(2)->data<T>()[0];
    const std::int64_t count = range_count(start, limit, delta);
    if (count < 0) c.fail(fmt::format("no range from {} to {} in steps of {}", start, limit, delta));
    c.output(c.dtype(0), Shape{count});
  });
}

PreparedKernel prepare_range(const PrepareContext& c) {
  return with_number("Range", c.outputs[0].dtype, [&]<class T>() {
    return parallel_kernel(c, c.outputs[0].shape.elements(), kElementGrain,
                           [](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
                             const T start = a.in<T>(0)[0], delta = a.in<T>(2)[0];
                             for (std::int64_t i = begin; i < end; ++i)
                               a.out<T>(0)[i] = static_cast<T>(start + static_cast<T>(i) * delta);
                           });
  });
}

void infer_lin_space(InferContext& c) {
  require_floating(c, 0);
  c.require_same_dtype(0, 1);
  require_index_dtype(c, 2);
  for (int i = 0; i < 3; ++i) c.require_rank(i, 0);
  if (!c.value(2)) return c.output(c.dtype(0), Shape{Shape::kUnknown});
  const std::int64_t count = tensor_to_int64s(*c.value(2))[0];
  if (count < 1) c.fail(fmt::format("num is {}", count));
  c.output(c.dtype(0), Shape{count});
}

/// The last element is `stop` itself, not what rounding makes of it.
PreparedKernel prepare_lin_space(const PrepareContext& c) {
  const std::int64_t count = c.outputs[0].shape[0];
  return with_float("LinSpace", c.outputs[0].dtype, [&]<class T>() {
    return parallel_kernel(
        c, count, kElementGrain, [count](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
          const T start = a.in<T>(0)[0], stop = a.in<T>(1)[0];
          const T step = count > 1 ? (stop - start) / static_cast<T>(count - 1) : T(0);
          for (std::int64_t i = begin; i < end; ++i)
            a.out<T>(0)[i] = i > 0 && i == count - 1 ? stop : start + static_cast<T>(i) * step;
        });
  });
}

void infer_empty(InferContext& c) {
  c.require_rank(0, 1);
  require_dtype(c, 0, {DType::Int32});
  Shape shape = Shape::unknown_rank();
  if (c.value(0))
    shape = Shape(tensor_to_int64s(*c.value(0)));
  else if (c.shape(0).is_static())
    shape = Shape(std::vector<std::int64_t>(static_cast<std::size_t>(c.shape(0)[0]), Shape::kUnknown));
  if (c.value(0))
    for (std::int64_t d : shape.dims())
      if (d < 0) c.fail("the shape has a negative dimension: " + shape.to_string());
  c.output(c.node().attrs.require<DType>("dtype"), std::move(shape));
}

OpDef like_op(std::string name, OpTraits traits, PrepareFn cpu) {
  return {.name = std::move(name),
          .traits = std::move(traits),
          .min_inputs = 1,
          .max_inputs = 1,
          .infer = infer_same_as_first,
          .gradient = [](GradContext&) {},  // constant in its input
          .cpu = std::move(cpu),
          .shape_only = {0}};
}

}  // namespace

void register_fill(OpRegistry& registry) {
  registry.add({.name = "Fill",
                .traits = moves().on_string_ids(),
                .min_inputs = 2,
                .max_inputs = 2,
                .infer = infer_fill,
                .gradient = fill_gradient,
                .cpu = prepare_fill,
                .shape_values = {0}});
  registry.add(like_op("ZerosLike", pointwise({"0", {"0"}}).batched(Batching::Never).on_string_ids(),
                       prepare_like<0>));
  registry.add(like_op("OnesLike", pointwise({"1", {"0"}}).batched(Batching::Never), prepare_like<1>));
  registry.add({.name = "Range",
                .traits = computes().type_attrs({{"Tidx", 0}}),
                .min_inputs = 3,
                .max_inputs = 3,
                .infer = infer_range,
                .no_gradient_reason = "its inputs decide how many elements there are",
                .cpu = prepare_range,
                .shape_values = {0, 1, 2}});
  registry.add({.name = "LinSpace",
                .traits = computes(),
                .min_inputs = 3,
                .max_inputs = 3,
                .infer = infer_lin_space,
                .no_gradient_reason = "TensorFlow gives it none",
                .cpu = prepare_lin_space,
                .shape_values = {2}});
  registry.add({.name = "Empty",
                .traits = moves(),
                .min_inputs = 1,
                .max_inputs = 1,
                .infer = infer_empty,
                .no_gradient_reason = "its input is a shape",
                .cpu = prepare_like<0>,
                .shape_values = {0}});
}

}  // namespace braid
