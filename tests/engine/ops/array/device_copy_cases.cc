#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(device_copy) {
  for (const char* op : {"braid.HostToDevice", "braid.DeviceToHost"}) {
    table.add(op, {.label = "floats", .inputs = {random_f64({3, 5}, 1)}});
    table.add(op, {.label = "indices", .inputs = {random_i64({7}, 2, 0, 100)}});
    table.add(op, {.label = "nothing", .inputs = {random_f64({0, 4}, 3)}});
  }
}

}  // namespace braid::testing
