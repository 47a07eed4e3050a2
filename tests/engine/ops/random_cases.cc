#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

void cases_random(OpCaseTable& table) {
  for (const char* op : {"RandomUniform", "RandomStandardNormal", "TruncatedNormal"}) {
    table.add(op, {.label = "matrix", .inputs = {axes({3, 5})}});
    table.add(op,
              {.label = "many blocks", .inputs = {i64({1}, {100001})}, .attrs = {{"seed", 7}, {"seed2", 1}}});
    table.add(op, {.label = "empty", .inputs = {axes({0, 2})}});
  }
  table.add("RandomUniformInt", {.label = "int32", .inputs = {axes({100}), i32({}, {-3}), i32({}, {4})}});
  table.add("RandomUniformInt",
            {.label = "int64, many blocks", .inputs = {axes({70000}), i64({}, {0}), i64({}, {1LL << 40})}});
  table.add("RandomShuffle", {.label = "rows", .inputs = {random_f64({9, 3}, 1)}});
  table.add("RandomShuffle", {.label = "many rows", .inputs = {random_i64({5001, 2}, 1, 0, 1LL << 40)}});
  table.add("RandomShuffle", {.label = "bytes", .inputs = {converted(random_f64({300}, 1), DType::Bool)}});
  table.add("RandomShuffle", {.label = "no rows", .inputs = {random_f64({0, 3}, 1)}});
}

}  // namespace braid::testing
