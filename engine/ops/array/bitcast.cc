// Bitcast(x), attribute type: the same bytes as elements of another type. A smaller element adds a last axis,
// a larger one takes it away.
#include <fmt/format.h>

#include "engine/ops/common/box_plan.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

void infer(InferContext& c) {
  const auto to = c.node().attrs.require<DType>("type");
  const auto from_size = static_cast<std::int64_t>(dtype_size(c.dtype(0)));
  const auto to_size = static_cast<std::int64_t>(dtype_size(to));
  if (from_size == 0 || to_size == 0 || c.dtype(0) == DType::Bool || to == DType::Bool)
    c.fail(fmt::format("does not see {} as {}", dtype_name(c.dtype(0)), dtype_name(to)));
  const Shape& in = c.shape(0);
  if (!in.has_rank() || from_size == to_size) return c.output(to, in);
  std::vector<std::int64_t> dims(in.dims().begin(), in.dims().end());
  if (from_size > to_size) {
    dims.push_back(from_size / to_size);
  } else {
    const std::int64_t parts = to_size / from_size;
    if (dims.empty() || (dims.back() != parts && dims.back() != Shape::kUnknown))
      c.fail(fmt::format("the last axis of shape {} must have {} elements", in.to_string(), parts));
    dims.pop_back();
  }
  c.output(to, Shape(std::move(dims)));
}

}  // namespace

BoxPlan plans::bitcast(const PrepareContext& c) {
  return {{{BoxCopy({{c.inputs[0].shape.elements(), 1, 1}}, 0, 0, dtype_size(c.inputs[0].dtype)), 0, 0}}};
}

void register_bitcast(OpRegistry& registry) {
  registry.add({.name = "Bitcast",
                .traits = moves().any_type(),
                .min_inputs = 1,
                .max_inputs = 1,
                .infer = infer,
                .no_gradient_reason = "bits are not differentiable",
                .cpu = prepare_boxes<plans::bitcast>});
}

}  // namespace braid
