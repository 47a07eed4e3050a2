#include "tests/engine/ops/op_cases.h"

namespace braid::testing {
namespace {

struct Shaped {
  const char* label;
  AttrMap attrs;
  bool targets = false;
};

}  // namespace

BRAID_OP_CASES(ragged_attention) {
  // Rows of 3, 0, 1 and 5 values, and two that are of no row; two heads.
  const std::vector<Tensor> qkv{random_f64({11, 2, 3}, 1), random_f64({11, 2, 3}, 2),
                                random_f64({11, 2, 4}, 3)};
  const Tensor offsets = i64({5}, {0, 3, 3, 4, 9}), narrow = i32({5}, {0, 3, 3, 4, 9});
  const Tensor targets = i64({4}, {1, 0, 1, 2});
  const std::vector<Shaped> all{
      {"causal", {}},
      {"both ways", {{"causal", false}}},
      {"candidates", {{"max_length", 6}}, true},
      {"context and window", {{"context", 2}, {"window", 1}}, true},
      {"window both ways", {{"causal", false}, {"window", 2}, {"scale", 0.7}}, true},
  };
  for (const char* activation : {"silu", "softmax"}) {
    const bool softmax = activation == std::string("softmax");
    for (const Shaped& shaped : all) {
      AttrMap attrs = shaped.attrs;
      attrs.set("activation", activation);
      std::vector<Tensor> inputs = qkv;
      inputs.push_back(shaped.targets ? narrow : offsets);
      if (shaped.targets) inputs.push_back(targets);
      const std::string label = std::string(activation) + ", " + shaped.label;
      table.add("braid.RaggedAttention",
                {.label = label, .inputs = inputs, .attrs = attrs, .no_gradient_outputs = {1}});
      inputs.insert(inputs.begin() + 3, random_f64({11, 2, 4}, 4));
      if (softmax) inputs.insert(inputs.end(), {random_f64({11, 2, 4}, 5), random_f64({11, 2}, 6, 1, 2)});
      table.add("braid.RaggedAttentionGrad", {.label = label, .inputs = inputs, .attrs = attrs});
    }
  }
  table.add(
      "braid.RaggedAttention",
      {.label = "no rows", .inputs = {qkv[0], qkv[1], qkv[2], i64({1}, {0})}, .no_gradient_outputs = {1}});
  table.add("braid.RaggedAttention",
            {.label = "several tiles and blocks",
             .inputs = {random_f64({260, 3, 5}, 7), random_f64({260, 3, 5}, 8), random_f64({260, 3, 5}, 9),
                        i64({4}, {0, 130, 150, 250})},
             .no_gradient_outputs = {1},
             .numeric_gradient = false});  // 11,700 numbers: ragged_attention_test.cc compares such shapes
}

}  // namespace braid::testing
