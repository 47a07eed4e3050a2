#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(unique) {
  for (const std::string op : {"Unique", "UniqueWithCounts"})
    for (const bool v2 : {false, true}) {
      const auto add = [&](const char* label, Tensor x, AttrMap attrs = {}) {
        std::vector<Tensor> inputs{std::move(x)};
        if (v2) inputs.push_back(i64({1}, {0}));
        table.add(op + (v2 ? "V2" : ""),
                  {.label = label, .inputs = std::move(inputs), .attrs = std::move(attrs)});
      };
      add("int32", axes({7, 1, 7, 3, 1}));
      add("float", f64({5}, {0.5, 2, 0.5, 0.5, -1}), {{"out_idx", DType::Int64}});
      add("nothing", i64({0}, {}));
    }
  table.add("Where", {.label = "matrix", .inputs = {bools({2, 3}, {true, false, true, false, false, true})}});
  table.add("Where", {.label = "numbers", .inputs = {f64({4}, {0, 0.5, 0, -1})}});
  table.add("Where", {.label = "nowhere", .inputs = {i64({2}, {0, 0})}});
}

}  // namespace braid::testing
