// Batch norm as elementwise nodes and sums: variables become what they become with the op.
#include <gtest/gtest.h>

#include "engine/builder/graph_builder.h"
#include "engine/compile/compile.h"
#include "engine/import/import.h"
#include "engine/program/program.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/towers.h"

namespace braid::testing {
namespace {

struct Options {
  std::string op = "FusedBatchNormV3", format = "NHWC";
  bool training = true;
  double share = 1;  // of new statistics
};

Towers network(const Options& options) {
  Towers made;
  GraphBuilder b;
  const Shape images = options.format == "NHWC" ? Shape{4, 3, 3, 6} : Shape{4, 6, 3, 3};
  made.request.feeds = {{"x", DType::Float32, images}};
  Output h = b.placeholder("x", DType::Float32, images);
  const Shape vector{6};
  const auto variable = [&](const std::string& name, bool trainable, float low, float high) {
    return b.variable(name, vector, {.init = {InitKind::Uniform, low, high}, .trainable = trainable});
  };
  std::vector<std::string> updates;
  for (int i = 0; i < 2; ++i) {
    const std::string name = "norm" + std::to_string(i);
    const Output scale = b.read(variable(name + "/scale", true, 0.5F, 1.5F)),
                 offset = b.read(variable(name + "/offset", true, -1, 1));
    const Output mean = variable(name + "/mean", false, -0.2F, 0.2F);
    // Squared, so that none is below zero.
    const Output variance = variable(name + "/variance", false, 0.5F, 2);
    const Output squared = b.op("Square", {b.read(variance)});
    const Output y = b.op(options.op, {h, scale, offset, b.read(mean), squared},
                          {{"epsilon", 0.01},
                           {"is_training", options.training},
                           {"exponential_avg_factor", options.share},
                           {"data_format", options.format}});
    if (options.training && options.share != 1) {
      updates.push_back(b.op("AssignVariableOp", {mean, {y.node, 1}}, {{"dtype", DType::Float32}}).node);
      updates.push_back(b.op("AssignVariableOp", {variance, {y.node, 2}}, {{"dtype", DType::Float32}}).node);
    }
    h = b.add(b.relu(y), h);
  }
  const Output loss = b.reduce_mean(b.mul(h, b.mul(h, h)));
  made.graph = import_graph(b.graph());
  made.request.fetches = {loss.name()};
  add_training(made, OptimizerKind::Sgd);
  for (const std::string& update : updates) made.request.targets.push_back(update);
  return made;
}

std::shared_ptr<const Program> compiled(const Towers& model, bool fusion = true) {
  CompileOptions options;
  options.domain = Domain::Device;
  options.fusion = fusion;
  return compile(model.graph, model.request, options);
}

int norms_of(const Program& program) {
  int count = 0;
  for (const ProgramOp& op : program.ops) count += op.op.starts_with("FusedBatchNorm");
  return count;
}

TEST(BatchNormTest, TrainingKeepsItsVariables) {
  for (const char* op : {"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})
    for (const double share : {1.0, 0.25}) {
      const Towers model = network({.op = op, .share = share});
      const auto program = compiled(model);
      EXPECT_EQ(norms_of(*program), 0);
      EXPECT_EQ(count_ops(*program, "braid.BatchNormStatistics"), 2);
      expect_variables_of_a_step(model, *program);
    }
}

TEST(BatchNormTest, InferenceStatisticsAreTheVariables) {
  const Towers model = network({.training = false});
  const auto program = compiled(model);
  EXPECT_EQ(norms_of(*program) + count_ops(*program, "braid.BatchNormStatistics"), 0);
  expect_variables_of_a_step(model, *program);
}

TEST(BatchNormTest, StaysWhereNothingIsFused) {
  EXPECT_EQ(norms_of(*compiled(network({}), false)), 4);
  EXPECT_EQ(norms_of(*compiled(network({.format = "NCHW"}))), 4) << "sums are of last axes";
}

}  // namespace
}  // namespace braid::testing
