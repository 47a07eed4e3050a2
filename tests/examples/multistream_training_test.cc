// The training programs of multi-stream users: what scopes do, and that streams change no number.
#include <gmock/gmock.h>

#include <map>

#include "examples/multistream_training/branches.h"
#include "examples/multistream_training/regression.h"
#include "proto/graph.pb.h"

namespace braid {
namespace {

constexpr std::uint64_t kSeed = 1;

BranchesOptions small(bool include_grad) {
  return {.branches = 4, .layers = 20, .width = 24, .rows = 16, .include_grad = include_grad};
}

std::vector<float> losses(const BranchesOptions& options, int streams, int steps) {
  Runtime runtime({.intra_op_threads = 1});
  SgdLoop loop(make_branches(options), kBranchesLoss, 0.5F, {branches_feed(options, kSeed)}, streams, kSeed,
               runtime);
  std::vector<float> all;
  for (int i = 0; i < steps; ++i) all.push_back(loop.step());
  return all;
}

TEST(MultistreamTrainingTest, StreamsAndScopesChangeNoBit) {
  const std::vector<float> one = losses(small(true), 1, 30);
  EXPECT_LT(one.back(), 0.7F * one.front());  // it learns
  EXPECT_EQ(losses(small(true), 4, 30), one);
  EXPECT_EQ(losses(small(false), 4, 30), one);
}

/// Products on each compute stream: forward ones, and those of the backward pass.
std::map<int, std::pair<int, int>> products(bool include_grad, int streams) {
  Runtime runtime({.intra_op_threads = 1});
  const BranchesOptions options = small(include_grad);
  const SgdLoop loop(make_branches(options), kBranchesLoss, 0.1F, {branches_feed(options, kSeed)}, streams,
                     kSeed, runtime);
  std::map<int, std::pair<int, int>> count;
  for (const ProgramOp& op : loop.program().ops) {
    if (op.op.find("MatMul") == std::string::npos) continue;
    auto& [forward, backward] = count[op.stream];
    ++(op.name.starts_with("gradients/") ? backward : forward);
  }
  return count;
}

TEST(MultistreamTrainingTest, BackwardNodesFollowTheirScopeUnlessToldNotTo) {
  // A branch has 20 forward products, 20 gradients of weights, and 19 of inputs: x needs none.
  using Count = std::map<int, std::pair<int, int>>;
  EXPECT_EQ(products(true, 4), (Count{{0, {20, 39}}, {1, {20, 39}}, {2, {20, 39}}, {3, {20, 39}}}));
  EXPECT_EQ(products(false, 4), (Count{{0, {20, 4 * 39}}, {1, {20, 0}}, {2, {20, 0}}, {3, {20, 0}}}));
  EXPECT_EQ(products(true, 1), (Count{{0, {80, 4 * 39}}}));
}

/// The same descent in double precision, by its formulas.
struct Descent {
  double w_x, w_y, b;

  double step() {
    double loss = 0, by_w = 0, by_b = 0;
    for (std::size_t i = 0; i < Regression::kPoints; ++i) {
      const double x = Regression::kInputs[i];
      const double error = (w_x + w_y) * x + b - Regression::kTruths[i];
      loss += error * error;
      by_w += 2 * error * x;
      by_b += 2 * error;
    }
    const double rate = Regression::kLearningRate / static_cast<double>(Regression::kPoints);
    w_x -= rate * by_w;
    w_y -= rate * by_w;
    b -= rate * by_b;
    return loss / static_cast<double>(Regression::kPoints);
  }
};

TEST(MultistreamTrainingTest, TheRegressionFollowsItsReferenceTrajectory) {
  Runtime runtime({.intra_op_threads = 1});
  GraphDef graph;
  const Regression regression = make_regression(graph);
  SgdLoop loop(graph, regression.loss, Regression::kLearningRate, regression.feeds, 2, kSeed, runtime);
  Descent reference{loop.value("weight_x"), loop.value("weight_y"), loop.value("bias")};
  for (int step = 0; step < Regression::kSteps; ++step) {
    const double expected = reference.step();
    ASSERT_NEAR(loop.step(), expected, 1e-4 * (1 + expected)) << "step " << step;
  }
  EXPECT_NEAR(loop.value("weight_x"), reference.w_x, 1e-3);
  EXPECT_NEAR(loop.value("weight_y"), reference.w_y, 1e-3);
  // Where the original program ends.
  EXPECT_NEAR(loop.value("weight_x") + loop.value("weight_y"), 0.26, 0.03);
  EXPECT_NEAR(loop.value("bias"), 0.73, 0.15);
  EXPECT_NEAR(loop.step(), 0.154, 0.005);
}

TEST(MultistreamTrainingTest, TheRegressionsBranchesAreOnTwoStreams) {
  Runtime runtime({.intra_op_threads = 1});
  GraphDef graph;
  const Regression regression = make_regression(graph);
  const SgdLoop loop(graph, regression.loss, Regression::kLearningRate, regression.feeds, 2, kSeed, runtime);
  std::map<int, int> products;
  for (const ProgramOp& op : loop.program().ops)
    products[op.stream] += op.op.find("MatMul") != std::string::npos;
  EXPECT_EQ(products, (std::map<int, int>{{0, 2}, {1, 2}}));
}

}  // namespace
}  // namespace braid
