#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(query_attention) {
  // Rows of 3, 0, 1 and 5 values, and two that are of no row; two heads.
  const Tensor q = random_f64({4, 2, 3}, 1), k = random_f64({11, 2, 3}, 2), v = random_f64({11, 2, 4}, 3);
  const Tensor offsets = i64({5}, {0, 3, 3, 4, 9}), narrow = i32({5}, {0, 3, 3, 4, 9});
  for (const bool softmax : {false, true}) {
    const AttrMap attrs{{"activation", softmax ? "softmax" : "silu"}, {"scale", softmax ? 0.7 : 0.0}};
    const std::string label = softmax ? "softmax" : "silu";
    table.add("braid.QueryAttention", {.label = label,
                                       .inputs = {q, k, v, softmax ? narrow : offsets},
                                       .attrs = attrs,
                                       .no_gradient_outputs = {1}});
    std::vector<Tensor> inputs{q, k, v, random_f64({4, 2, 4}, 4), offsets};
    if (softmax) inputs.insert(inputs.end(), {random_f64({4, 2, 4}, 5), random_f64({4, 2}, 6, 1, 2)});
    table.add("braid.QueryAttentionGrad", {.label = label, .inputs = inputs, .attrs = attrs});
  }
  table.add("braid.QueryAttention", {.label = "known length",
                                     .inputs = {q, k, v, offsets},
                                     .attrs = {{"max_length", 6}},
                                     .no_gradient_outputs = {1}});
  table.add("braid.QueryAttention", {.label = "no rows",
                                     .inputs = {random_f64({0, 2, 3}, 1), k, v, i64({1}, {0})},
                                     .no_gradient_outputs = {1}});
}

}  // namespace braid::testing
