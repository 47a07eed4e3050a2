// Variables of siblings in slabs: every program and checkpoint knows them by their own names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/builder/graph_builder.h"
#include "engine/exec/plan_report.h"
#include "engine/exec/program_cache.h"
#include "engine/import/import.h"
#include "engine/ops/state/variable_init.h"
#include "engine/rewrite/horizontal_fusion.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/towers.h"
#include "tests/support/message_of.h"

namespace braid::testing {
namespace {

TEST(SlabTest, TowersBecomeOneAndTheirVariablesLieInSlabs) {
  const Towers towers = make_towers({}, true);
  const auto apart = compile_towers(towers, BatchSiblings::Off),
             batched = compile_towers(towers, BatchSiblings::WithinScopes);
  EXPECT_EQ(count_ops(*apart, "MatMul"), 4 * (3 + 3 + 2));
  EXPECT_EQ(count_ops(*batched, "MatMul"), 0);
  EXPECT_EQ(count_ops(*batched, "BatchMatMulV2"), 3 + 3 + 2);
  EXPECT_EQ(count_ops(*batched, "braid.ApplyOptimizer"), 6) << "three kernels, three biases";
  EXPECT_EQ(count_ops(*batched, "BiasAddGrad"), 0);
  EXPECT_EQ(count_ops(*batched, "Pack") + count_ops(*batched, "Unpack"), 0);
  EXPECT_EQ(count_ops(*batched, "ConcatV2") + count_ops(*batched, "braid.SplitLike"), 0)
      << "lanes are joined, and taken apart, by a Transpose";
  int slabs = 0;
  for (const ProgramVariable& variable : batched->variables) {
    slabs += !variable.members.empty();
    if (!variable.members.empty()) {
      EXPECT_EQ(variable.members.size(), 4U);
    }
  }
  EXPECT_EQ(slabs, 6 * 3) << "values and both of Adam's slots";
  EXPECT_NE(plan_report(*batched).find("horizontal_fusion: "), std::string::npos);

  Runtime first({}), second({});
  expect_close(losses(towers, batched, second), losses(towers, apart, first));
  EXPECT_EQ(second.variables().names(), first.variables().names()) << "slabs have no names of their own";
  for (const std::string& name : first.variables().names()) {
    const Tensor a = *first.variables().read(name), b = *second.variables().read(name);
    ASSERT_EQ(a.shape(), b.shape()) << name;
    for (std::int64_t i = 0; i < a.elements(); ++i)
      ASSERT_NEAR(a.data<float>()[static_cast<std::size_t>(i)], b.data<float>()[static_cast<std::size_t>(i)],
                  2e-4F)
          << name;
  }
}

TEST(SlabTest, AnotherProgramUsesAVariableOfASlabAlone) {
  const Towers training = make_towers({}, true), forward = make_towers({}, false);
  Runtime batched({}), apart({});
  losses(training, compile_towers(training, BatchSiblings::WithinScopes), batched);
  losses(training, compile_towers(training, BatchSiblings::Off), apart);
  const auto evaluate = [&](Runtime& runtime) {
    Instance instance(compile_towers(forward, BatchSiblings::Off), runtime);
    return instance.run(request(0, feeds_of(forward, 3)), soon()).fetches[0].data<float>()[0];
  };
  EXPECT_NEAR(evaluate(batched), evaluate(apart), 1e-5F);
  // The other way round there is no slab to be had.
  Runtime late({});
  Instance first(compile_towers(training, BatchSiblings::Off), late);
  EXPECT_THAT(
      message_of([&] { Instance second(compile_towers(training, BatchSiblings::WithinScopes), late); }),
      ::testing::HasSubstr("programs that share variables must batch siblings alike"));
}

TEST(SlabTest, EverySizeOfABatchTakesTheVariablesAsTheFirstHasLaidThemOut) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, Shape{Shape::kUnknown, kWide});
  std::vector<Output> tops;
  for (int tower = 0; tower < 4; ++tower)
    tops.push_back(b.dense("tower" + std::to_string(tower), x, kWide, kWide, true));
  Towers towers;
  const Output all = b.concat(tops, 1), loss = b.reduce_mean(b.mul(all, all));
  towers.graph = import_graph(b.graph());
  towers.request.fetches = {loss.name()};
  add_training(towers, OptimizerKind::Momentum);
  const auto train = [&](BatchSiblings batching, const std::vector<std::int64_t>& sizes) {
    CompileOptions options;
    options.batch_siblings = batching;
    Runtime runtime({});
    ProgramCache cache(towers.graph, towers.request.fetches, towers.request.targets, options, runtime);
    std::vector<float> losses;
    for (const std::int64_t rows : sizes) {
      const auto instance = cache.instance({{"x", DType::Float32, Shape{rows, kWide}}});
      if (losses.empty())
        for (const VariableInfo& variable : list_variables(towers.graph)) {
          Tensor value(variable.dtype, variable.shape);
          initialize_variable(towers.graph.node(variable.handle), 5, value);
          runtime.variables().write(variable.name, value);
        }
      Tensor input(DType::Float32, Shape{rows, kWide});
      for (std::size_t i = 0; i < static_cast<std::size_t>(input.elements()); ++i)
        input.data<float>()[i] = std::sin(static_cast<float>(i));
      StepRequest r = request(losses.size(), {input});
      r.params.learning_rate = 0.01F;
      losses.push_back(instance->run(std::move(r), soon()).fetches[0].data<float>()[0]);
    }
    return losses;
  };
  // The larger batch gains nothing by it, and has its siblings apart.
  for (const auto& sizes : {std::vector<std::int64_t>{4, 4096, 3, 4}, {4096, 4, 4096}})
    expect_close(train(BatchSiblings::WithinScopes, sizes), train(BatchSiblings::Off, sizes));
}

TEST(SlabTest, AVariableThatIsUsedAloneTooIsNotInASlab) {
  Towers towers = make_towers({.optimizer = OptimizerKind::Sgd}, true);
  // One more reader of one kernel.
  Node read;
  read.name = "peek";
  read.op = &OpRegistry::global().require("ReadVariableOp");
  read.attrs.set("dtype", DType::Float32);
  read.inputs = {{towers.graph.find("tower1/layer0/kernel"), 0}};
  towers.graph.add(std::move(read));
  towers.request.fetches.push_back("peek");
  const auto batched = compile_towers(towers, BatchSiblings::WithinScopes);
  for (const ProgramVariable& variable : batched->variables)
    for (const std::string& member : variable.members)
      EXPECT_EQ(member.find("layer0/kernel"), std::string::npos);
  Runtime first({}), second({});
  expect_close(losses(towers, batched, second),
               losses(towers, compile_towers(towers, BatchSiblings::Off), first));
}

}  // namespace
}  // namespace braid::testing
