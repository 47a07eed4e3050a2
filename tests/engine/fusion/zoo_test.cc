// Models of the zoo on the CPU: losses and gradients have the same bits with and without fused regions.
#include <gtest/gtest.h>

#include "engine/autodiff/gradients.h"
#include "engine/compile/compile.h"
#include "engine/exec/instance.h"
#include "engine/exec/runtime.h"
#include "engine/import/import.h"
#include "engine/ops/state/variable_init.h"
#include "engine/program/program.h"
#include "models/model.h"
#include "proto/graph.pb.h"
#include "tests/engine/fusion/random_regions.h"
#include "tests/engine/testing/test_ops.h"

namespace braid::testing {
namespace {

constexpr std::int64_t kRows = 24, kIds = 50, kClasses = 5;

struct Differentiable {
  Graph graph;
  CompileRequest request;
  std::vector<Tensor> feeds;
};

Tensor feed_of(const OutputInfo& info, unsigned seed) {
  Shape shape = info.shape;
  shape.set_dim(0, kRows);
  if (info.dtype == DType::Float32) return random_floats(shape, seed);
  Tensor ids(info.dtype, shape);
  for (std::int64_t i = 0; i < ids.elements(); ++i)
    ids.data<std::int64_t>()[static_cast<std::size_t>(i)] = (i * 7 + seed) % kClasses;
  return ids;
}

Differentiable made(const std::string& name) {
  ModelConfig config;
  config.classes = kClasses;
  config.embedding_dim = 8;
  config.hash_buckets = kIds;
  config.columns = {{"image", Shape{12, 12, 1}}, {"label", Shape{}},    {"dense", Shape{3}},
                    {"sparse", Shape{2}},        {"click", Shape{}},    {"purchase", Shape{}},
                    {"item", Shape{1}},          {"history", Shape{6}}, {"tokens", Shape{6}}};
  const ModelGraph model = build_model(name, config);
  Differentiable made{import_graph(*model.graph), {}, {}};
  made.request.fetches = {model.loss};
  for (const VariableGradient& gradient : add_gradients(made.graph, made.graph.parse_value(model.loss)))
    if (gradient.dense.valid()) made.request.fetches.push_back(made.graph.value_name(gradient.dense));
  for (const std::string& column : model.columns) {
    const OutputInfo& info = made.graph.info(made.graph.parse_value(column));
    made.feeds.push_back(feed_of(info, static_cast<unsigned>(made.feeds.size())));
    made.request.feeds.push_back({column, info.dtype, made.feeds.back().shape()});
  }
  return made;
}

/// And how many regions there were.
std::pair<std::vector<Tensor>, int> run(const Differentiable& model, bool fusion) {
  CompileOptions options;
  options.fusion = fusion;
  const auto program = compile(model.graph, model.request, options);
  Runtime runtime(RuntimeOptions{});
  Instance instance(program, runtime);
  for (const VariableInfo& variable : list_variables(model.graph)) {
    auto value = runtime.variables().read(variable.name);
    if (!value) continue;
    initialize_variable(model.graph.node(variable.handle), 1, *value);
    runtime.variables().write(variable.name, *value);
  }
  StepRequest request;
  request.feeds = model.feeds;
  return {instance.run(std::move(request), WaitContext::with_timeout(std::chrono::seconds(60))).fetches,
          count_ops(*program, "braid.Fused")};
}

class ZooFusionTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ZooFusionTest, LossAndGradientsKeepTheirBits) {
  const Differentiable model = made(GetParam());
  const auto [expected, none] = run(model, false);
  const auto [got, regions] = run(model, true);
  EXPECT_EQ(none, 0);
  EXPECT_GT(regions, 0);
  for (std::size_t f = 0; f < expected.size(); ++f)
    EXPECT_EQ(difference(expected[f], got[f]), "") << model.request.fetches[f];
}

INSTANTIATE_TEST_SUITE_P(Zoo, ZooFusionTest,
                         ::testing::Values("mlp", "cnn", "resnet18", "wide_deep", "deepfm", "dcn_v2", "mmoe",
                                           "din", "dlrm", "transformer"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace braid::testing
