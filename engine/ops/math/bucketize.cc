// Bucketize(x), attribute boundaries (rising): the number of boundaries that are not above x, int32; of a NaN
// all of them. LowerBound and UpperBound(sorted [rows, n], values [rows, m]), attribute out_type: the number
// of elements of the row that are below each value, or not above it.
#include <fmt/format.h>

#include <algorithm>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

void infer(InferContext& c) {
  require_number(c, 0);
  const auto boundaries = c.attr("boundaries", std::vector<double>{});
  for (std::size_t i = 1; i < boundaries.size(); ++i)
    if (boundaries[i] < boundaries[i - 1])
      c.fail(fmt::format("boundaries must rise, got {} before {}", boundaries[i - 1], boundaries[i]));
  c.output(DType::Int32, c.shape(0));
}

PreparedKernel prepare(const PrepareContext& c) {
  return with_number("Bucketize", c.inputs[0].dtype, [&]<class T>() {
    return parallel_kernel(c, c.outputs[0].shape.elements(), kElementGrain / 8,
                           [boundaries = c.attr("boundaries", std::vector<double>{})](
                               const KernelArgs& a, std::int64_t begin, std::int64_t end) {
                             for (std::int64_t i = begin; i < end; ++i) {
                               const auto x = static_cast<double>(a.in<T>(0)[i]);
                               const auto above = std::upper_bound(boundaries.begin(), boundaries.end(), x);
                               a.out<std::int32_t>(0)[i] =
                                   static_cast<std::int32_t>(above - boundaries.begin());
                             }
                           });
  });
}

void infer_bound(InferContext& c) {
  require_number(c, 0);
  c.require_same_dtype(0, 1);
  for (const int i : {0, 1}) c.require_rank(i, 2);
  const Shape &sorted = c.shape(0), &values = c.shape(1);
  const bool known =
      sorted.has_rank() && values.has_rank() && sorted[0] != Shape::kUnknown && values[0] != Shape::kUnknown;
  if (known && sorted[0] != values[0])
    c.fail(fmt::format("{} rows of values for {} sorted rows", values[0], sorted[0]));
  const DType index = c.attr("out_type", DType::Int32);
  if (index != DType::Int32 && index != DType::Int64) c.fail("out_type must be int32 or int64");
  c.output(index, values.has_rank() ? values : Shape{-1, -1});
}

template <bool kUpper>
PreparedKernel prepare_bound(const PrepareContext& c) {
  const std::int64_t n = c.inputs[0].shape[1], m = c.inputs[1].shape[1];
  return with_number(c.node.op->name, c.inputs[0].dtype, [&]<class T>() {
    return with_index(c.node.op->name, c.outputs[0].dtype, [&]<class I>() {
      return parallel_kernel(c, c.outputs[0].shape.elements(), kElementGrain / 8,
                             [n, m](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
                               for (std::int64_t i = begin; i < end; ++i) {
                                 const T* row = a.in<T>(0) + i / m * n;
                                 const T x = a.in<T>(1)[i];
                                 const T* at = kUpper ? std::upper_bound(row, row + n, x)
                                                      : std::lower_bound(row, row + n, x);
                                 a.out<I>(0)[i] = static_cast<I>(at - row);
                               }
                             });
    });
  });
}

}  // namespace

void register_bucketize(OpRegistry& registry) {
  registry.add({.name = "Bucketize",
                .traits = computes(),
                .min_inputs = 1,
                .max_inputs = 1,
                .infer = infer,
                .no_gradient_reason = "the output is integers",
                .cost = cost_per_output(10),
                .cpu = prepare});
  for (const bool upper : {false, true})
    registry.add({.name = upper ? "UpperBound" : "LowerBound",
                  .traits = computes(),
                  .min_inputs = 2,
                  .max_inputs = 2,
                  .infer = infer_bound,
                  .no_gradient_reason = "the output is integers",
                  .cost = cost_per_output(10),
                  .cpu = upper ? prepare_bound<true> : prepare_bound<false>});
}

}  // namespace braid
