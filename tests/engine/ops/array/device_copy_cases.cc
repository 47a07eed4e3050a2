#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(device_copy) {
  for (const char* op : {"braid.HostToDevice", "braid.DeviceToHost"}) {
    table.add(op, {.label = "floats", .inputs = {random_f64({3, 5}, 1)}});
    table.add(op, {.label = "indices", .inputs = {random_i64({7}, 2, 0, 100)}});
    table.add(op, {.label = "nothing", .inputs = {random_f64({0, 4}, 3)}});
  }
  const auto floats = [](Shape shape, std::uint64_t seed) {
    return converted(random_f64(std::move(shape), seed), DType::Float32);
  };
  for (const Shape& shape : {Shape{3, 5}, Shape{0, 4}}) {
    table.add("braid.FetchState", {.label = shape.to_string(),
                                   .inputs = {floats(shape, 1)},
                                   .attrs = {{"dtype", DType::Float32}},
                                   .variables = {0}});
    table.add("braid.StoreState",
              {.label = shape.to_string(), .inputs = {floats(shape, 1), floats(shape, 2)}, .variables = {0}});
  }
}

}  // namespace braid::testing
