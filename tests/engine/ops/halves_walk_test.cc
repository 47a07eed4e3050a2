// Walks the ops that take float16 and bfloat16 (engine/ops/common/halves.h): each of their cases with halves
// is the same case of float32, rounded once at the end.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "tests/engine/ops/half_cases.h"
#include "tests/engine/ops/op_runner.h"

namespace braid::testing {
namespace {

struct Ran {
  std::vector<Tensor> outputs;
  std::map<NodeId, Tensor> variables;
};

Ran run(const OpDef& def, const OpCase& op_case, int pool_width = 1) {
  CaseGraph made = make_case_graph(def, op_case);
  made.execution.pool_width = pool_width;
  made.execution.params.learning_rate = 0.1F;
  const ValueRef after = add_known(made.graph, "after", Tensor::scalar<std::int32_t>(0));
  made.graph.mutable_node(after.node).control_inputs.push_back(made.node);  // an op may have no outputs
  std::vector<ValueRef> fetches = made.outputs();
  fetches.push_back(after);
  std::vector<Tensor> outputs = evaluate(made.graph, made.execution, fetches);
  outputs.pop_back();
  return {std::move(outputs), made.execution.variables};
}

void expect_same_bits(const Tensor& expected, const Tensor& actual) {
  ASSERT_EQ(expected.dtype(), actual.dtype());
  ASSERT_EQ(expected.shape(), actual.shape());
  EXPECT_EQ(std::memcmp(expected.raw(), actual.raw(), expected.bytes()), 0);
}

class HalvesWalk : public ::testing::TestWithParam<DType> {};

TEST_P(HalvesWalk, ResultsAreThoseOfFloat32RoundedOnce) {
  int walked = 0;
  for (const OpDef* def : half_ops_of_registry())
    for (const OpCase& op_case : all_op_cases().of(def->name))
      for (const bool narrow : {false, true}) {
        SCOPED_TRACE(fmt::format("[{}] case '{}'", def->name, op_case.label));
        const auto made = half_case(*def, op_case, GetParam(), narrow);
        if (!made) continue;
        try {
          const Ran expected = run(*def, made->floats), actual = run(*def, made->halves);
          ASSERT_EQ(expected.outputs.size(), actual.outputs.size());
          for (std::size_t o = 0; o < actual.outputs.size(); ++o) {
            SCOPED_TRACE(fmt::format("output {}", o));
            const bool rounded = std::find(made->rounded.begin(), made->rounded.end(), static_cast<int>(o)) !=
                                 made->rounded.end();
            expect_same_bits(rounded ? cast(expected.outputs[o], GetParam()) : expected.outputs[o],
                             actual.outputs[o]);
          }
          for (const auto& [id, value] : expected.variables) expect_same_bits(value, actual.variables.at(id));
          ++walked;
        } catch (const std::exception& error) {
          ADD_FAILURE() << error.what();
        }
      }
  EXPECT_GT(walked, 100);
}

TEST_P(HalvesWalk, BitsDoNotDependOnThePool) {
  for (const OpDef* def : half_ops_of_registry())
    for (const OpCase& op_case : all_op_cases().of(def->name)) {
      SCOPED_TRACE(fmt::format("[{}] case '{}'", def->name, op_case.label));
      const auto made = half_case(*def, op_case, GetParam(), true);
      if (!made) continue;
      const Ran one = run(*def, made->halves, 1), three = run(*def, made->halves, 3);
      for (std::size_t o = 0; o < one.outputs.size(); ++o) expect_same_bits(one.outputs[o], three.outputs[o]);
    }
}

INSTANTIATE_TEST_SUITE_P(Types, HalvesWalk, ::testing::Values(DType::Float16, DType::BFloat16),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

TEST(HalvesTest, EveryProductAndItsGradientsTakeThem) {
  for (const char* name :
       {"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "Conv2D", "Conv2DBackpropInput",
        "Conv2DBackpropFilter", "braid.FusedConv2D", "braid.FusedMatMul", "braid.ProductUpdate"}) {
    const HalfForm* form = half_form(OpRegistry::global().require(name));
    ASSERT_NE(form, nullptr) << name;
    EXPECT_EQ(form->kind, HalfKind::Product) << name;
  }
}

TEST(HalvesTest, CastManyIsManyCasts) {
  for (const DType half : {DType::Float16, DType::BFloat16}) {
    const std::vector<Tensor> inputs{cast(random_f64({70000}, 1, -1e4, 1e4), DType::Float32),
                                     cast(random_f64({3, 5}, 2), DType::Float32),
                                     cast(random_f64({0, 4}, 3), DType::Float32)};
    const std::vector<Tensor> many = run_op("braid.CastMany", inputs, {{"DstT", half}});
    ASSERT_EQ(many.size(), inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) expect_same_bits(cast(inputs[i], half), many[i]);
  }
}

}  // namespace
}  // namespace braid::testing
