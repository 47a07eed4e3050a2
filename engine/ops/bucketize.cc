// Bucketize(x), attribute boundaries (rising): the number of boundaries that are not above x, int32; of a NaN
// all of them.
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

}  // namespace

void register_bucketize(OpRegistry& registry) {
  registry.add({.name = "Bucketize",
                .min_inputs = 1,
                .max_inputs = 1,
                .infer = infer,
                .no_gradient_reason = "the output is integers",
                .cost = cost_per_output(10),
                .cpu = prepare});
}

}  // namespace braid
