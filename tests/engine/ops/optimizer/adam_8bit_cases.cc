#include "base/optim.h"
#include "engine/ops/optimizer/optimizer_attrs.h"
#include "tests/engine/ops/op_cases.h"

namespace braid::testing {
namespace {

Tensor code_floats(Shape shape, std::uint64_t seed, double low) {
  return converted(random_f64(std::move(shape), seed, low, 1.5), DType::Float32);
}

void add_coded(OpCaseTable& table, const char* label, const OptimizerSpec& spec, const Shape& shape,
               double low = -1) {
  const Shape scales{(shape.elements() + 255) / 256};
  const auto codes = [&](std::uint64_t seed) {
    return converted(random_i64(shape, seed, 0, 256), DType::UInt8);
  };
  table.add("braid.ApplyAdam8Bit",
            {.label = label,
             .inputs = {code_floats(shape, 1, -1), codes(2), codes(3), code_floats(scales, 4, 0.5),
                        code_floats(scales, 5, 0.5), code_floats(shape, 6, low)},
             .attrs = optimizer_attrs(spec),
             .variables = {0, 1, 2, 3, 4}});
}

}  // namespace

BRAID_OP_CASES(adam_8bit) {
  const OptimizerSpec plain{.kind = OptimizerKind::Adam};
  add_coded(table, "part of a block", plain, {4, 3});
  add_coded(table, "a block", plain, {256});
  add_coded(table, "several blocks", plain, {37, 29});
  add_coded(table, "many blocks", plain, {300, 517});
  add_coded(table, "all around it",
            {.kind = OptimizerKind::Adam,
             .weight_decay = 0.1F,
             .l1 = 0.2F,
             .l2 = 0.3F,
             .clip_value = 0.9F,
             .learning_rate_factor = 0.5F},
            {5, 111});
  add_coded(table, "nothing", plain, {0, 4});
}

}  // namespace braid::testing
