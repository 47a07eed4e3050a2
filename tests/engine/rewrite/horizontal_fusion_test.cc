// Siblings as one node: what is batched, and that results stay. Their variables: slab_test.cc.
#include "engine/rewrite/horizontal_fusion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <limits>
#include <random>
#include <sstream>

#include "base/error.h"
#include "engine/builder/graph_builder.h"
#include "engine/compile/compile.h"
#include "engine/exec/plan_report.h"
#include "engine/exec/trace.h"
#include "engine/exec/tune.h"
#include "engine/import/import.h"
#include "engine/ops/optimizer/optimizer_attrs.h"
#include "engine/program/stream_rules.h"
#include "models/multi_branch.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/towers.h"
#include "tests/support/in_some_attempt.h"
#include "tests/support/message_of.h"

namespace braid::testing {
namespace {

using ::testing::HasSubstr;

TEST(BatchSiblingsTest, LayersOfLanesAreFusedOnADevice) {
  const Towers towers = make_towers({}, true);
  CompileOptions options;
  options.domain = Domain::Device;
  options.batch_siblings = BatchSiblings::WithinScopes;
  const auto program = compile(towers.graph, towers.request, options);
  EXPECT_EQ(count_ops(*program, "braid.FusedMatMul"), 3);
  EXPECT_EQ(count_ops(*program, "BatchMatMulV2"), 3 + 2) << "the gradients";
  EXPECT_EQ(count_ops(*program, "braid.ReluBiasGrad"), 2);
  for (const ProgramOp& op : program->ops) {
    if (op.op != "braid.FusedMatMul") continue;
    const Node& node = program->graph.node(op.node);
    const bool joined = node.attrs.get<bool>("joined", false);  // the last one's outputs are side by side
    EXPECT_EQ(node.outputs[0].shape, joined ? (Shape{kRows, 4, kWide}) : (Shape{4, kRows, kWide}));
    EXPECT_EQ(program->graph.info(node.inputs[2]).shape, (Shape{4, kWide}));
  }
}

/// Layers without ReLU whose variables have other uses, so that they would have to be packed in each step.
TEST(BatchSiblingsTest, WhatADeviceFusesAnywayIsNotSavedByBatching) {
  GraphBuilder b;
  const Shape square{64, 64}, row{64};
  const Output x = b.placeholder("x", DType::Float32, square);
  std::vector<std::string> fetches;
  for (int layer = 0; layer < 3; ++layer) {
    NameScope name(b, "layer" + std::to_string(layer));
    const Output kernel = b.read(b.variable("kernel", square, {})),
                 bias = b.read(b.variable("bias", row, {}));
    fetches.push_back(b.op("BiasAdd", {b.matmul(x, kernel), bias}).name());
    if (layer > 0) continue;
    fetches.push_back(b.op("Exp", {kernel}).name());
    fetches.push_back(b.op("Exp", {bias}).name());
  }
  CompileOptions options;
  options.domain = Domain::Device;
  options.batch_siblings = BatchSiblings::WithinScopes;
  const auto program =
      compile(import_graph(b.graph()), {{{"x", DType::Float32, square}}, fetches, {}}, options);
  EXPECT_EQ(count_ops(*program, "braid.FusedMatMul"), 3);
  EXPECT_EQ(count_ops(*program, "Pack") + count_ops(*program, "Unpack"), 0);
}

TEST(BatchSiblingsTest, S8_TenThousandNodesCompileInTime) {
  const Towers towers = make_towers({.towers = 12, .layers = 64, .optimizer = OptimizerKind::Sgd}, true);
  EXPECT_GT(towers.graph.size(), 9500);
  for (const Domain domain : {Domain::Host, Domain::Device})
    for (const auto batching : {BatchSiblings::Off, BatchSiblings::WithinScopes}) {
      CompileOptions options;
      options.domain = domain;
      options.batch_siblings = batching;
      const std::clock_t begin = std::clock();  // of the process: others may be busy
      compile(towers.graph, towers.request, options);
      const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
      EXPECT_LT(seconds, 60) << "the aim is 1 s in a Release build; sanitizers take ten times as long";
    }
}

TEST(BatchSiblingsTest, S8_GivingUpManyGroupsThatDoNotPayCostsLittleOfACompile) {
  GraphBuilder b;
  std::minstd_rand random(1);
  std::vector<Output> values(50, b.placeholder("x", DType::Float32, {4, 8}));
  Towers graph;
  for (int i = 0; i < 8000; ++i) {
    const auto any = [&] { return values[values.size() - 50 + random() % 50]; };
    const char* const ops[] = {"AddV2", "Mul", "Sub", "Maximum"};
    values.push_back(b.op(ops[random() % 4], {any(), any()}));
  }
  for (int i = 0; i < 50; ++i) graph.request.fetches.push_back(values.end()[-1 - i].name());
  graph.graph = import_graph(b.graph());
  graph.request.feeds = {{"x", DType::Float32, Shape{4, 8}}};
  const auto seconds = [&](BatchSiblings batching) {
    const std::clock_t begin = std::clock();  // of the process: others may be busy
    compile_towers(graph, batching);
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  in_some_attempt([&] { EXPECT_LT(seconds(BatchSiblings::WithinScopes), 3 * seconds(BatchSiblings::Off)); });
}

TEST(BatchSiblingsTest, EachTowersOwnInputIsPackedOnce) {
  const Towers towers = make_towers({.own_input = true}, true);
  const auto batched = compile_towers(towers, BatchSiblings::WithinScopes);
  EXPECT_EQ(count_ops(*batched, "MatMul"), 0);
  EXPECT_EQ(count_ops(*batched, "Pack"), 1);
  Runtime first({}), second({});
  expect_close(losses(towers, batched, second),
               losses(towers, compile_towers(towers, BatchSiblings::Off), first));
}

TEST(BatchSiblingsTest, OpsOnDifferentStreamsStayApartUnlessAllowed) {
  const Towers towers = make_towers({.own_streams = true}, true);
  const auto apart = compile_towers(towers, BatchSiblings::WithinScopes, 4),
             across = compile_towers(towers, BatchSiblings::AcrossScopes, 4);
  EXPECT_EQ(count_ops(*apart, "BatchMatMulV2"), 0);
  EXPECT_EQ(count_ops(*across, "MatMul"), 0);
  Runtime first({}), second({});
  expect_close(losses(towers, across, second), losses(towers, apart, first));
}

TEST(BatchSiblingsTest, IgnoredIdsKeepNothingApartAndIdsThatAutoGivesUpStillDo) {
  const Towers towers = make_towers({.own_streams = true}, true);
  const auto products = [&](Scopes scopes) {
    CompileOptions options;
    options.batch_siblings = BatchSiblings::WithinScopes;
    options.streams.count = 4;
    options.streams.policy = StreamPolicy::Cost;
    options.streams.scopes = scopes;
    return count_ops(*compile(towers.graph, towers.request, options), "BatchMatMulV2");
  };
  EXPECT_GT(products(Scopes::Ignored), 0);
  EXPECT_EQ(products(Scopes::KeptApart), 0) << "the bits are those of the graph with its ids";
}

TEST(BatchSiblingsTest, AFetchedLaneIsUnpacked) {
  Towers towers = make_towers({}, true);
  towers.request.fetches = {towers.tops[2]};
  towers.request.targets.clear();
  const auto apart = compile_towers(towers, BatchSiblings::Off),
             batched = compile_towers(towers, BatchSiblings::AcrossScopes);
  EXPECT_EQ(count_ops(*batched, "MatMul"), 3) << "one tower alone has no siblings";
  towers.request.fetches = {towers.tops[2], towers.tops[0], towers.tops[3]};
  const auto three = compile_towers(towers, BatchSiblings::WithinScopes);
  EXPECT_EQ(count_ops(*three, "BatchMatMulV2"), 3);
  EXPECT_EQ(count_ops(*three, "Unpack"), 1);
  Runtime first({}), second({});
  expect_close(losses(towers, three, second, 1),
               losses(towers, compile_towers(towers, BatchSiblings::Off), first, 1));
}

/// The models that ranking is made of, small: eight towers with inputs of their own, and eight experts with
/// four tasks.
Towers make_model(bool towers) {
  Towers made;
  GraphBuilder b;
  const auto feed = [&](const std::string& name, Shape shape) {
    made.request.feeds.push_back({name, DType::Float32, shape});
    return b.placeholder(name, DType::Float32, std::move(shape));
  };
  Output loss;
  if (towers) {
    std::vector<Output> inputs;
    for (int t = 0; t < 8; ++t) inputs.push_back(feed("x" + std::to_string(t), Shape{kRows, kWide}));
    loss = build_towers(b, inputs, kWide, feed("label", Shape{kRows}), 0);
  } else {
    const Output x = feed("x", Shape{kRows, kWide});
    std::vector<Output> labels;
    for (int t = 0; t < 4; ++t) labels.push_back(feed("label" + std::to_string(t), Shape{kRows}));
    loss = build_mmoe(b, x, kWide, labels, 8, 0);
  }
  made.graph = import_graph(b.graph());
  made.request.fetches = {loss.name()};
  add_training(made, OptimizerKind::Sgd);
  return made;
}

TEST(BatchSiblingsTest, LargeModelsOfManyBranchesAreBatchedOnADeviceAndNotOnTheHost) {
  for (const bool towers : {true, false}) {
    const Towers model = make_model(towers);
    const auto ops = [&](BatchSiblings batching, Domain domain) {
      CompileOptions options;
      options.batch_siblings = batching;
      options.domain = domain;
      return compile(model.graph, model.request, options)->ops.size();
    };
    EXPECT_LT(3 * ops(BatchSiblings::WithinScopes, Domain::Device), ops(BatchSiblings::Off, Domain::Device));
    EXPECT_EQ(ops(BatchSiblings::WithinScopes, Domain::Host), ops(BatchSiblings::Off, Domain::Host))
        << "it would save dispatch alone, of which such layers have little";
  }
}

TEST(BatchSiblingsTest, TasksOfAMixtureAreNeitherPackedNorUnpackedOnADevice) {
  const Towers model = make_model(false);
  CompileOptions options;
  options.batch_siblings = BatchSiblings::WithinScopes;
  options.domain = Domain::Device;
  const auto program = compile(model.graph, model.request, options);
  EXPECT_EQ(count_ops(*program, "Pack"), 1) << "the labels";
  EXPECT_EQ(count_ops(*program, "Unpack"), 0);
  EXPECT_EQ(count_ops(*program, "braid.SumOfOuterProducts"), 1);
  for (const ProgramVariable& variable : program->variables)
    EXPECT_FALSE(variable.members.empty()) << variable.name << ": biases of one element have slabs, too";
}

TEST(BatchSiblingsTest, TheDecisionDoesNotDependOnTheNumberOfStreams) {
  const Towers towers = make_towers({}, true);
  std::vector<std::string> reference;
  for (const int streams : {1, 2, 4, 8}) {
    CompileOptions options;
    options.batch_siblings = BatchSiblings::WithinScopes;
    options.streams.count = streams;
    options.streams.policy = StreamPolicy::Cost;
    const auto program = compile(towers.graph, towers.request, options);
    std::vector<std::string> names;
    for (const ProgramOp& op : program->ops) names.push_back(op.op + " " + op.name);
    std::sort(names.begin(), names.end());
    if (reference.empty()) reference = names;
    EXPECT_EQ(names, reference) << streams << " streams";
  }
}

TEST(BatchSiblingsTest, ARuleThatNamesLanesPutsTheirBatchOnItsStream) {
  const Towers towers = make_towers({.towers = 8, .layers = 1}, false);
  const auto with_rules = [&](const std::string& rules) {
    CompileOptions options;
    options.batch_siblings = BatchSiblings::WithinScopes;
    options.streams.count = 3;
    options.streams.policy = StreamPolicy::User;
    options.streams.rules = std::make_shared<const StreamRules>(StreamRules::parse(rules, "rules.txt"));
    return compile(towers.graph, towers.request, options);
  };
  const auto together = with_rules("2:tower.*");
  EXPECT_EQ(count_ops(*together, "MatMul"), 0);
  for (const ProgramOp& op : together->ops)
    if (op.op == "BatchMatMulV2") {
      EXPECT_EQ(op.stream, 2);
    }
  EXPECT_EQ(plan_report(*together).find("no node matches"), std::string::npos);
  // Four and four: what the rules put on different streams are no siblings.
  const auto halves = with_rules("1:tower[0-3].*\n2:tower[4-7].*");
  EXPECT_EQ(count_ops(*halves, "BatchMatMulV2"), 2);
  for (const ProgramOp& op : halves->ops)
    if (op.op == "BatchMatMulV2") {
      EXPECT_EQ(op.stream, op.name.find("tower0") != std::string::npos ? 1 : 2) << op.name;
    }
  const std::string refusal = message_of([&] { with_rules("7:tower.*"); });
  EXPECT_THAT(refusal, HasSubstr("rules.txt:1: "));
  EXPECT_THAT(refusal, HasSubstr("stream 7 does not exist"));
}

TEST(BatchSiblingsTest, ReportsAndTheTraceSayForWhichNodesABatchStands) {
  const Towers towers = make_towers({}, true);
  const auto batched = compile_towers(towers, BatchSiblings::WithinScopes);
  const std::string lanes =
      "tower0/layer1/MatMul, tower1/layer1/MatMul, tower2/layer1/MatMul, tower3/layer1/MatMul";
  EXPECT_NE(plan_report(*batched).find("'batch/tower0/layer1/MatMul' = " + lanes), std::string::npos)
      << plan_report(*batched);
  Runtime runtime({.intra_op_threads = 1, .trace = true});
  losses(towers, batched, runtime, 1);
  std::ostringstream trace;
  runtime.trace()->write(trace, "test");
  EXPECT_NE(trace.str().find(R"("name":"batch/tower0/layer1/MatMul","args":{"step":0,"nodes":")" + lanes),
            std::string::npos);
}

TEST(BatchSiblingsTest, ACheckForNaNNamesTheNodeOfTheGraphAsWritten) {
  const Towers towers = make_towers({}, false);
  CompileOptions options;
  options.batch_siblings = BatchSiblings::WithinScopes;
  options.check_numerics = true;
  Runtime runtime({});
  Instance instance(compile(towers.graph, towers.request, options), runtime);
  Tensor bias = Tensor::zeros(DType::Float32, Shape{kWide});
  bias.data<float>()[3] = std::numeric_limits<float>::infinity();
  runtime.variables().write("tower2/layer1/bias", bias);
  EXPECT_THAT(message_of<Error>([&] { instance.run(request(0, feeds_of(towers, 0)), soon()); }),
              HasSubstr("node 'tower2/layer1/"));
}

TEST(BatchSiblingsTest, BitsOfManyStreamsAreThoseOfOneAtAFixedDecision) {
  const Towers towers = make_towers({.layers = 2}, true);
  std::vector<float> reference;
  for (const int streams : {1, 4}) {
    CompileOptions options;
    options.batch_siblings = BatchSiblings::WithinScopes;
    options.streams.count = streams;
    options.streams.policy = StreamPolicy::Cost;
    Runtime runtime({});
    const auto result = losses(towers, compile(towers.graph, towers.request, options), runtime);
    if (reference.empty()) reference = result;
    EXPECT_EQ(result, reference);
  }
}

TEST(BatchSiblingsTest, AutoMeasuresTheBatchedProgramAndKeepsTheBatching) {
  const Towers towers = make_towers({}, true);
  CompileOptions options;
  options.batch_siblings = BatchSiblings::WithinScopes;
  options.streams.count = 2;
  Runtime job({});
  TuneOptions tune;
  tune.budget = std::chrono::milliseconds(50);
  const StreamPlan plan = tune_streams(towers.graph, towers.request, options, feeds_of(towers, 0), job, tune);
  EXPECT_EQ(plan.why.find("failed"), std::string::npos) << plan.why;
  EXPECT_TRUE(plan.costs.contains("batch/tower0/layer0/MatMul")) << plan.why;
  options.streams = plan.apply(options.streams);
  EXPECT_EQ(count_ops(*compile(towers.graph, towers.request, options), "MatMul"), 0);
}

/// Layers of siblings that take each other's results in any order, share inputs and variables, and are
/// updated.
Towers make_random(std::uint64_t seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  Towers made;
  GraphBuilder b;
  const Shape shape{4, 4};
  made.request.feeds.push_back({"x", DType::Float32, shape});
  std::vector<Output> values{b.placeholder("x", DType::Float32, shape)}, variables;
  for (int v = 0; v < 6; ++v)
    variables.push_back(
        b.variable("v" + std::to_string(v), shape, {.init = {InitKind::Uniform, -0.6F, 0.6F}}));
  const std::size_t layers = 2 + below(5), width = 2 + below(4);
  std::vector<Output> last = values;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    const std::size_t kind = below(7);
    std::vector<Output> next;
    for (std::size_t lane = 0; lane < width; ++lane) {
      const Output in = below(5) ? last[lane % last.size()] : values[below(values.size())];
      const Output other =
          below(2) ? values[below(values.size())] : b.read(variables[below(variables.size())]);
      const Output weight = b.read(variables[below(3) ? lane % variables.size() : below(variables.size())]);
      switch (below(6) ? kind : below(7)) {
        case 0:
        case 1:
          next.push_back(b.op("Tanh", {b.matmul(in, weight, below(2) == 0)}));
          break;
        case 2:
          next.push_back(b.relu(in));
          break;
        case 3:
          next.push_back(b.op("Tanh", {b.add(in, other)}));
          break;
        case 4:
          next.push_back(b.mul(in, other));
          break;
        case 5:
          next.push_back(b.op("Softmax", {in}));
          break;
        default:
          next.push_back(b.reshape(b.reshape(in, {2, 8}), {4, 4}));
          break;
      }
    }
    last = next;
    values.insert(values.end(), next.begin(), next.end());
  }
  const Output loss = b.reduce_mean(b.op("AddN", last));
  const std::string fetched = values[below(values.size())].name();
  made.graph = import_graph(b.graph());
  made.request.fetches = {loss.name()};
  if (below(3)) add_training(made, below(2) ? OptimizerKind::Sgd : OptimizerKind::Momentum);
  if (below(2)) made.request.fetches.push_back(fetched);
  return made;
}

TEST(BatchSiblingsTest, RandomSiblingsGiveTheResultsOfTheGraphAsWritten) {
  int batched_graphs = 0;
  for (std::uint64_t seed = 0; seed < 800 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    const Towers graph = make_random(seed);
    const auto apart = compile_towers(graph, BatchSiblings::Off),
               batched = compile_towers(graph, BatchSiblings::WithinScopes);
    batched_graphs += batched->ops.size() < apart->ops.size();
    Runtime first({}), second({});
    expect_close(losses(graph, batched, second, 3), losses(graph, apart, first, 3));
    for (const std::string& name : first.variables().names()) {
      const Tensor a = *first.variables().read(name), b = *second.variables().read(name);
      for (std::size_t i = 0; i < static_cast<std::size_t>(a.elements()); ++i)
        ASSERT_NEAR(a.data<float>()[i], b.data<float>()[i], 1e-4F) << name;
    }
  }
  EXPECT_GT(batched_graphs, 100);
}

}  // namespace
}  // namespace braid::testing
