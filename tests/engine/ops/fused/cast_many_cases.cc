#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(cast_many) {
  const auto floats = [](const Tensor& t) { return converted(t, DType::Float32); };
  for (const DType half : {DType::Float16, DType::BFloat16}) {
    const std::string name(dtype_name(half));
    table.add("braid.CastMany",
              {.label = "three to " + name,
               .inputs = {floats(random_f64({7}, 1)), floats(random_f64({3, 40}, 2, -1e5, 1e5)),
                          floats(random_f64({0, 5}, 3))},
               .attrs = {{"DstT", half}}});
    table.add("braid.CastMany", {.label = "several blocks to " + name,
                                 .inputs = {floats(random_f64({70001}, 4)), floats(random_f64({}, 5))},
                                 .attrs = {{"DstT", half}}});
  }
  Tensor bits(DType::BFloat16, Shape{4});
  for (std::size_t i = 0; i < 4; ++i)
    reinterpret_cast<std::uint16_t*>(bits.raw())[i] = static_cast<std::uint16_t>(0x3F80 + 17 * i);
  table.add("braid.CastMany", {.label = "back", .inputs = {bits, bits}, .attrs = {{"DstT", DType::Float32}}});
}

}  // namespace braid::testing
