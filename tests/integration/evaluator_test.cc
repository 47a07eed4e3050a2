// The evaluator task of a cluster: checkpoints of every strategy, measured beside training.
#include <gmock/gmock.h>
#include <signal.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/integration/checkpoints.h"

namespace braid::integration {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kEvaluator =
    R"({"cluster": {"worker": ["127.0.0.1:1"]}, "task": {"type": "evaluator", "index": 0}})";

class EvaluatorTest : public IntegrationTest {
 protected:
  Path checkpoints() const { return directory() / "checkpoints"; }
  Job job(std::vector<std::string> more = {}) const {
    return wide_deep().with({"steps=60"}).with(checkpoints_in(checkpoints(), 20)).with(std::move(more));
  }
  std::unique_ptr<Process> evaluate(const std::string& name, const Job& job) const {
    return std::make_unique<Process>(braid(job.arguments()), Variables{{"TF_CONFIG", kEvaluator}},
                                     directory() / name);
  }
  static void flip_a_byte(const Path& file) {
    std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
    f.seekg(200);
    const char byte = static_cast<char>(f.get());
    f.seekp(200);
    f.put(static_cast<char>(byte ^ 1));
    ASSERT_TRUE(f.good()) << file;
  }
  static json result_in(const std::string& text, const std::string& mark) {
    const std::size_t at = text.rfind(mark);
    if (at == std::string::npos) return {};
    return json::parse(text.substr(at + mark.size(), text.find('\n', at) - at - mark.size()));
  }
};

class EvaluatorOfClusterTest : public EvaluatorTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(EvaluatorOfClusterTest, MeasuresTheLastStepAsTheLeaderDoes) {
  const std::string strategy = GetParam();
  std::vector<std::string> arguments{
      "launch", "--workers", "2", "--evaluator", "--ps", strategy == "PS" ? "1" : "0", "--"};
  const Job trained =
      job({"strategy.kind=" + strategy, "evaluation.enabled=true", "evaluation.every_steps=20"});
  for (const std::string& word : trained.arguments()) arguments.push_back(word);
  Process launcher(braid(arguments), {}, directory() / "launch");
  ASSERT_EQ(launcher.exit_code(), 0) << launcher.err();
  const json evaluated = result_in(launcher.err(), "[evaluator 0] result: ");
  ASSERT_TRUE(evaluated.contains("auc")) << launcher.err();
  EXPECT_EQ(evaluated["last_step"], 60);
  EXPECT_GE(evaluated["evaluations"], 1);
  EXPECT_EQ(evaluated["auc"].get<double>(), result_of(launcher).quality.value_or(0));
}

INSTANTIATE_TEST_SUITE_P(Strategies, EvaluatorOfClusterTest, ::testing::Values("PS", "ALLREDUCE"));

TEST_F(EvaluatorTest, SeesTheEndOfAJobWhoseLeaderMakesAnyNumberOfSteps) {
  std::vector<std::string> arguments{"launch", "--workers", "2", "--evaluator", "--ps", "1", "--"};
  const Job trained = job({"strategy.kind=PS", "strategy.consistency=ASP", "input.shard=DYNAMIC",
                           "evaluation.enabled=true", "evaluation.patience_seconds=60"});
  for (const std::string& word : trained.arguments()) arguments.push_back(word);
  Process launcher(braid(arguments), {}, directory() / "launch");
  ASSERT_EQ(launcher.exit_code(), 0) << launcher.err();
  EXPECT_EQ(result_in(launcher.err(), "[evaluator 0] result: ")["last_step"], result_of(launcher).last_step);
}

TEST_F(EvaluatorTest, ADamagedCheckpointIsLeftOutAndTheNextOneMeasured) {
  const auto trained = run("train", job({"steps=40", "evaluation.enabled=true"}).arguments());
  ASSERT_EQ(trained->exit_code(), 0) << trained->err();
  flip_a_byte(checkpoints() / "step-000000000040" / "worker-0.shard");
  const auto evaluator = evaluate("evaluator", job({"steps=60"}));
  ASSERT_TRUE(evaluator->says("skipping a damaged checkpoint")) << evaluator->err();
  ASSERT_TRUE(evaluator->says("step 20: auc 0.")) << evaluator->err();
  std::vector<std::string> resumed = job({"steps=60"}).arguments();
  resumed.push_back("--resume");
  ASSERT_EQ(run("resume", resumed)->exit_code(), 0);
  EXPECT_EQ(evaluator->exit_code(), 0) << evaluator->err();
  EXPECT_EQ(result_in(evaluator->out(), "result: ")["last_step"], 60);
}

TEST_F(EvaluatorTest, EachCheckpointIsMeasuredInOrderAlsoWhereTrainingIsFasterAndPrunes) {
  const Job job = this->job({"steps=80", "checkpoint.every_steps=10", "checkpoint.keep=1",
                             "evaluation.batch_size=4"});  // a slow evaluation
  const auto evaluator = evaluate("evaluator", job);
  ASSERT_TRUE(evaluator->says("of the checkpoints in")) << evaluator->err();
  ASSERT_EQ(run("train", job.arguments())->exit_code(), 0);
  EXPECT_EQ(evaluator->exit_code(), 0) << evaluator->err();
  EXPECT_EQ(result_in(evaluator->out(), "result: ")["evaluations"], 8) << evaluator->err();
  std::size_t at = 0;
  for (int step = 10; step <= 80; step += 10) {
    at = evaluator->err().find("step " + std::to_string(step) + ": auc", at);
    ASSERT_NE(at, std::string::npos) << step << "\n" << evaluator->err();
  }
}

TEST_F(EvaluatorTest, ARunThatOverwritesIsMeasuredAndNotTheOneBefore) {
  const auto old = run("old", job({"steps=80"}).arguments());
  ASSERT_EQ(old->exit_code(), 0) << old->err();
  std::vector<std::string> arguments = job({"strategy.start_deadline_seconds=0.5"}).arguments();
  arguments.push_back("--overwrite");
  std::this_thread::sleep_for(std::chrono::seconds(2));  // the run that is overwritten began before
  Process evaluator(braid(arguments), Variables{{"TF_CONFIG", kEvaluator}}, directory() / "evaluator");
  ASSERT_TRUE(evaluator.says("of the checkpoints in")) << evaluator.err();
  const auto trained = run("new", arguments);
  ASSERT_EQ(trained->exit_code(), 0) << trained->err();
  EXPECT_EQ(evaluator.exit_code(), 0) << evaluator.err();
  EXPECT_EQ(result_in(evaluator.out(), "result: ")["last_step"], 60);
  EXPECT_THAT(evaluator.err(), ::testing::Not(HasSubstr("step 80:")));
}

TEST_F(EvaluatorTest, PatienceHasAnEnd) {
  const auto evaluator = evaluate("evaluator", job({"evaluation.patience_seconds=0.3"}));
  EXPECT_EQ(evaluator->exit_code(), 138);
  EXPECT_THAT(evaluator->err(),
              AllOf(HasSubstr("no new checkpoint in '" + checkpoints().string() + "' for 0.3 s"),
                    HasSubstr("there was none")));
}

TEST_F(EvaluatorTest, StopsAtSigterm) {
  const auto evaluator = evaluate("evaluator", job());
  ASSERT_TRUE(evaluator->says("of the checkpoints in")) << evaluator->err();
  evaluator->signal(SIGTERM);
  EXPECT_EQ(evaluator->exit_code(), 143);
}

TEST_F(EvaluatorTest, WhatItNeedsIsSaid) {
  const auto refused = [&](const Job& job, const std::string& why) {
    const auto evaluator = evaluate("refused", job);
    EXPECT_EQ(evaluator->exit_code(), 2);
    EXPECT_THAT(evaluator->err(), HasSubstr(why));
  };
  refused(wide_deep(), "an evaluator needs checkpoint.directory");
  const auto trained = run("train", job({"steps=20"}).arguments());
  ASSERT_EQ(trained->exit_code(), 0) << trained->err();
  refused(job({"model.embedding_dim=4"}), "the checkpoint of step 20: '");
}

/// Workers that measure together find what one process finds, to the last bit.
class SharedEvaluationTest
    : public EvaluatorTest,
      public ::testing::WithParamInterface<std::tuple<std::vector<std::string>, int, bool>> {};

TEST_P(SharedEvaluationTest, HasTheBitsOfOneProcess) {
  const auto& [strategy, workers, streamed] = GetParam();
  Job trained = job({"evaluation.enabled=true", "evaluation.every_steps=20", "evaluation.batch_size=61"})
                    .with(strategy);
  if (streamed) trained = trained.with({"input.read=STREAM", "input.stream.virtual_shards=6"});
  Cluster cluster(directory() / "cluster", trained, {workers, 0});
  cluster.expect_success();
  const json together = result_in(cluster.worker(0).out(), "result: ");
  ASSERT_TRUE(together.contains("auc")) << cluster.worker(0).out();
  EXPECT_THAT(cluster.worker(0).err(), HasSubstr("workers share the test rows"));

  std::vector<std::string> arguments = trained.with({"strategy.kind=LOCAL"}).arguments();
  arguments[0] = "evaluate";
  for (const std::string& word : {std::string("--checkpoint"), checkpoints().string()})
    arguments.push_back(word);
  const auto alone = run("alone", arguments);
  ASSERT_EQ(alone->exit_code(), 0) << alone->err();
  const json expected = result_in(alone->out(), "result: ");
  for (const char* metric : {"auc", "log_loss", "pr_auc", "calibration"})
    EXPECT_EQ(together[metric].get<double>(), expected[metric].get<double>()) << metric;
}

std::vector<std::string> hybrid(const std::string& plan, const std::string& tables = ".*") {
  return {"strategy.kind=HYBRID", "strategy.hybrid.table=match: '" + tables + "' plan: " + plan};
}

INSTANTIATE_TEST_SUITE_P(
    Strategies, SharedEvaluationTest,
    ::testing::Values(std::tuple{std::vector<std::string>{"strategy.kind=ALLREDUCE"}, 2, false},
                      std::tuple{std::vector<std::string>{"strategy.kind=ALLREDUCE"}, 3, true},
                      std::tuple{hybrid("ROW"), 2, false}, std::tuple{hybrid("ROW"), 3, true},
                      std::tuple{hybrid("TABLE"), 3, false},
                      std::tuple{hybrid("COLUMN", "deep/.*"), 2, true}));

TEST_F(EvaluatorTest, WorkersThatShareAnEvaluationStopEarlyTogether) {
  Cluster cluster(directory() / "cluster",
                  job({"strategy.kind=ALLREDUCE", "evaluation.enabled=true", "evaluation.every_steps=10",
                       "evaluation.target=0.01"}),
                  {2, 0});
  cluster.expect_success();
  const json result = result_in(cluster.worker(0).out(), "result: ");
  EXPECT_LT(result["last_step"].get<int>(), 20);
  EXPECT_TRUE(result.contains("stopped_early"));
}

TEST_F(EvaluatorTest, AWorkerWithoutTestFilesLeavesThemToTheLeader) {
  const Job trained = job({"strategy.kind=ALLREDUCE", "evaluation.enabled=true"});
  const launch::PortReservation ports(2);
  std::vector<std::unique_ptr<Process>> workers;
  for (int rank = 0; rank < 2; ++rank) {
    Job own = trained;
    if (rank == 1) own = own.with({"input.test_files=none.csv"});
    const std::string spec =
        nlohmann::json{{"cluster", {{"worker", {ports.addresses()[0], ports.addresses()[1]}}}},
                       {"task", {{"type", "worker"}, {"index", rank}}}}
            .dump();
    workers.push_back(std::make_unique<Process>(braid(own.arguments()), Variables{{"TF_CONFIG", spec}},
                                                directory() / ("worker-" + std::to_string(rank))));
  }
  for (const auto& worker : workers) EXPECT_EQ(worker->exit_code(), 0) << worker->err();
  EXPECT_THAT(workers[1]->err(), HasSubstr("the leader measures alone"));
  EXPECT_TRUE(result_in(workers[0]->out(), "result: ").contains("auc"));
}

}  // namespace
}  // namespace braid::integration
