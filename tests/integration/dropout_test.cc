// Dropout in the steps of zoo models: what is drawn follows from seed, worker and step, and evaluation draws
// nothing. That a run that was killed goes on with the same numbers is in restart_test.cc.
#include <gmock/gmock.h>

#include <fstream>
#include <set>

#include "base/files.h"
#include "tests/integration/checkpoints.h"

namespace braid::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class DropoutJobTest : public IntegrationTest {
 protected:
  static Job dropping(const Job& job, const std::string& rate = "0.3") {
    return job.with({"steps=40", "optimizer.kind=ADAM", "optimizer.learning_rate=0.001",
                     "streams.policy=NONE", "model.dropout=" + rate});
  }
};

TEST_F(DropoutJobTest, FollowsFromTheSeedWhateverTheStreamsAndThreads) {
  const Job job = dropping(mmoe());
  const std::vector<float> losses = train("one-stream", job);
  EXPECT_NE(losses, train("none", dropping(mmoe(), "0")));
  EXPECT_NE(losses, train("seed", job.with({"seed=12345"})));
  EXPECT_EQ(losses, train("streams", job.with({"streams.policy=COST", "streams.count=4"})));
  EXPECT_EQ(losses, train("threads", job.with({"runtime.intra_op_threads=3"})));
}

TEST_F(DropoutJobTest, DrawsAnotherMaskEachStep) {
  // Nothing is learned and every batch is the whole data: only the masks tell the steps apart.
  const auto job = [](const char* rate) {
    return dropping(mmoe(), rate)
        .with({"optimizer.kind=SGD", "optimizer.learning_rate=1e-30", "input.generator.rows=8",
               "input.shuffle=false"});
  };
  const std::vector<float> kept = train("kept", job("0")), dropped = train("dropped", job("0.3"));
  EXPECT_EQ(std::set<float>(kept.begin(), kept.end()).size(), 1U);
  EXPECT_GT(std::set<float>(dropped.begin(), dropped.end()).size(), 35U);
}

TEST_F(DropoutJobTest, EvaluationDropsNothing) {
  std::vector<double> qualities;
  for (const char* rate : {"0", "0.5"}) {
    const auto process = run(
        rate, dropping(mmoe(), rate)
                  .with({"optimizer.kind=SGD", "optimizer.learning_rate=1e-30", "evaluation.enabled=true"})
                  .arguments());
    ASSERT_EQ(process->exit_code(), 0) << process->err();
    qualities.push_back(result_of(*process).quality.value());
  }
  EXPECT_EQ(qualities[0], qualities[1]);
}

TEST_F(DropoutJobTest, AnExportedModelForPredictionHasNone) {
  const auto exported = [this](const std::string& name, std::vector<std::string> more) {
    const Path file = directory() / (name + ".pbtxt");
    std::vector<std::string> arguments{"graph",     "export", "--model", "transformer",
                                       "--dropout", "0.1",    "--out",   file.string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto process = run(name, arguments);
    EXPECT_EQ(process->exit_code(), 0) << process->err();
    return read_file(file);
  };
  EXPECT_THAT(exported("training", {}), HasSubstr("braid.Dropout"));
  EXPECT_THAT(exported("inference", {"--inference"}), Not(HasSubstr("braid.Dropout")));
}

/// A worker's share of a batch has its own masks, so two workers train as two workers however they exchange
/// gradients, and one worker with a server as a job alone.
TEST_F(DropoutJobTest, ServersAndAllReduceTrainAlike) {
  const Job job = dropping(mmoe());
  const auto losses = [&](const std::string& name, const char* strategy, Cluster::Shape shape) {
    Cluster cluster(directory() / name, job.with({std::string("strategy.kind=") + strategy}), shape);
    cluster.expect_success();
    return cluster.mean_losses();
  };
  const auto expect_near = [](const std::vector<double>& a, const std::vector<double>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-4) << "step " << i;
  };
  expect_near(losses("servers", "PS", {2, 2}), losses("ring", "ALLREDUCE", {2, 0}));
  const std::vector<float> alone = train("alone", job);
  expect_near(losses("one", "PS", {1, 1}), {alone.begin(), alone.end()});
}

TEST_F(DropoutJobTest, WorkersDrawMasksOfTheirOwn) {
  std::ifstream all(wide_deep().data / "adult.data");
  std::string row;
  std::getline(all, row);
  std::ofstream same(directory() / "adult.data");
  for (int i = 0; i < 64; ++i) same << row << "\n";
  same.close();
  for (const char* rate : {"0", "0.3"}) {
    Job job = dropping(wide_deep(), rate).with({"steps=1", "strategy.kind=PS"});
    job.data = directory();
    Cluster cluster(directory() / rate, job, {2, 1});
    cluster.expect_success();
    const auto first = losses_of(cluster.steps_file(0)), second = losses_of(cluster.steps_file(1));
    EXPECT_EQ(first == second, std::string(rate) == "0") << "the rows are equal, dropout " << rate;
  }
}

TEST_F(DropoutJobTest, WhatCannotBeIsRefused) {
  const auto expect_refused = [this](const Job& job, const char* says) {
    const auto process = run("refused", job.arguments());
    EXPECT_EQ(process->exit_code(), 2) << says;
    EXPECT_THAT(process->err(), HasSubstr(says));
  };
  expect_refused(dropping(mmoe(), "1"), "model.dropout must be in [0, 1)");
  expect_refused(dropping(linear_regression()), "model 'linear_regression' has no layer with dropout");
}

}  // namespace
}  // namespace braid::integration
