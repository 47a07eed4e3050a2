#include <vector>

#include "base/optim.h"
#include "engine/ops/optimizer/adafactor.h"
#include "engine/ops/optimizer/optimizer_attrs.h"
#include "tests/engine/ops/op_cases.h"

namespace braid::testing {
namespace {

Tensor factor_floats(Shape shape, std::uint64_t seed, double low) {
  return converted(random_f64(std::move(shape), seed, low, 1.5), DType::Float32);
}

Shape without(const Shape& shape, int axis) {
  std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().end());
  dims.erase(dims.begin() + axis);
  return Shape(std::move(dims));
}

void add_factored(OpCaseTable& table, const char* label, const OptimizerSpec& spec, const Shape& shape) {
  OpCase made{.label = label, .inputs = {factor_floats(shape, 1, -1)}, .attrs = optimizer_attrs(spec)};
  const AdafactorLayout of = adafactor_layout(spec, shape);
  if (of.has_moment) made.inputs.push_back(factor_floats(shape, 2, -1));
  if (of.factored) {
    made.inputs.push_back(factor_floats(without(shape, shape.rank() - 1), 3, 0.5));
    made.inputs.push_back(factor_floats(without(shape, shape.rank() - 2), 4, 0.5));
  } else {
    made.inputs.push_back(factor_floats(shape, 3, 0.5));
  }
  for (int i = 0; i < of.gradient(); ++i) made.variables.push_back(i);
  made.inputs.push_back(factor_floats(shape, 5, -1));
  table.add("braid.ApplyAdafactor", std::move(made));
}

}  // namespace

BRAID_OP_CASES(adafactor) {
  const OptimizerSpec plain{.kind = OptimizerKind::Adafactor, .beta1 = 0, .epsilon = 1e-30F};
  OptimizerSpec with_moment = plain;
  with_moment.beta1 = 0.9F;
  with_moment.weight_decay = 0.1F;
  with_moment.clip_threshold = 0.3F;
  OptimizerSpec alone = plain;
  alone.scale_by_weights = false;
  add_factored(table, "vector", plain, {7});
  add_factored(table, "scalar", plain, {});
  add_factored(table, "matrix", plain, {4, 3});
  add_factored(table, "with a first moment", with_moment, {5, 6});
  add_factored(table, "vector with a first moment", with_moment, {9});
  add_factored(table, "its own scale", alone, {3, 8});
  add_factored(table, "stack of matrices", with_moment, {2, 3, 5, 4});
  add_factored(table, "tall", plain, {1301, 3});
  add_factored(table, "wide", plain, {3, 40'003});
  add_factored(table, "several tiles", with_moment, {97, 517});
  add_factored(table, "long vector", plain, {70'001});
  add_factored(table, "one column", plain, {50, 1});
  add_factored(table, "nothing", plain, {0, 4});
}

}  // namespace braid::testing
