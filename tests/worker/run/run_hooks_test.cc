// A run that another program embeds: rows and values from memory, functions between steps; the same bits step
// by step, and forward passes with the values that come out.
#include "worker/run/hooks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/exec/runtime.h"
#include "engine/input/formats/readers.h"
#include "launch/cluster_spec.h"
#include "proto/job.pb.h"
#include "tests/support/message_of.h"
#include "worker/evaluation/model_runner.h"
#include "worker/job/job.h"
#include "worker/process/stop_signal.h"
#include "worker/roles/roles.h"
#include "worker/run/fed_steps.h"

namespace braid::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

/// The two-branch regression on rows that the test brings.
proto::Job job(int steps) {
  return load_job_text(R"(model { name: "linear_regression" } steps: )" + std::to_string(steps) +
                           R"( optimizer { kind: MOMENTUM learning_rate: 0.001 }
      input { format: NPY train_files: "x.npy" global_batch_size: 8 shuffle: false }
      runtime { device: CPU intra_op_threads: 1 } evaluation { enabled: false })",
                       "test", {});
}

std::shared_ptr<const Table> rows() {
  const auto column = [](float scale) {
    Tensor values(DType::Float32, Shape{8, 1});
    for (std::size_t i = 0; i < 8; ++i) values.data<float>()[i] = scale * static_cast<float>(i);
    return values;
  };
  return table_of_arrays({{"x", column(1)}, {"y", column(0.5F)}, {"z", column(2)}});
}

struct Ran {
  std::vector<float> losses;
  std::map<std::string, Tensor> values;
  TrainResult result;
};

Ran run(int steps, std::map<std::string, Tensor> initial = {}, std::uint64_t first = 0, int stop_at = -1) {
  Ran ran;
  const auto stop = std::make_shared<StopFlag>();
  RunHooks hooks{.train = rows(), .initial = std::move(initial), .first_step = first};
  hooks.step = [&](const StepOutcome& step) {
    ran.losses.push_back(step.loss);
    if (static_cast<int>(step.step) == stop_at) stop->request();
  };
  hooks.ended = [&](const TrainResult& result, const VariableStore& store) {
    ran.result = result;
    ran.values = copy_values(store);
  };
  RoleOptions role;
  role.hooks = &hooks;
  run_role(job(steps), role, stop);
  return ran;
}

TEST(RunHooksTest, TheRunIsOnTheRowsThatWereBroughtAndTellsEachStep) {
  const Ran ran = run(12);
  EXPECT_THAT(ran.losses, SizeIs(12));
  EXPECT_LT(ran.losses.back(), ran.losses.front());
  EXPECT_EQ(ran.result.last_step, 12U);
  EXPECT_TRUE(ran.values.contains("weight_x/momentum")) << "slots are among the values";
}

TEST(RunHooksTest, ARunGoesOnFromValuesWithTheSameBits) {
  const Ran whole = run(12), first = run(5);
  const Ran second = run(12, first.values, 5);
  std::vector<float> joined = first.losses;
  joined.insert(joined.end(), second.losses.begin(), second.losses.end());
  EXPECT_EQ(joined, whole.losses);
}

TEST(RunHooksTest, SingleStepsHaveTheBitsOfTheRun) {
  const Ran whole = run(6);
  FedSteps steps(job(6), {.train = rows()});
  std::vector<float> losses;
  for (int i = 0; i < 6; ++i) {
    std::vector<Tensor> batch;
    for (const auto& feed : steps.feeds()) batch.push_back(rows()->find(feed.name)->data);
    losses.push_back(steps.step(std::move(batch)).loss);
  }
  EXPECT_EQ(losses, whole.losses);
  EXPECT_EQ(steps.done(), 6U);
  for (const auto& [name, value] : steps.values())
    EXPECT_TRUE(std::ranges::equal(value.as_bytes(), whole.values.at(name).as_bytes())) << name;
}

TEST(RunHooksTest, FactorsMultiplyTheLearningRateOfTheirSteps) {
  const auto rates = [](std::vector<double> factors, std::uint64_t every) {
    const RunHooks hooks{.rate_factors = std::move(factors), .factor_every = every};
    std::vector<float> found;
    for (std::uint64_t step = 0; step < 5; ++step) found.push_back(learning_rate(job(5), &hooks, step, 5));
    return found;
  };
  EXPECT_THAT(rates({}, 1), ElementsAre(0.001F, 0.001F, 0.001F, 0.001F, 0.001F));
  EXPECT_THAT(rates({1, 0.5, 2}, 1), ElementsAre(0.001F, 0.0005F, 0.002F, 0.002F, 0.002F));
  EXPECT_THAT(rates({1, 0.5}, 3), ElementsAre(0.001F, 0.001F, 0.001F, 0.0005F, 0.0005F));
}

TEST(RunHooksTest, RunsAndSingleStepsHaveTheSameFactors) {
  const auto stop = std::make_shared<StopFlag>();
  RunHooks hooks{.train = rows(), .rate_factors = {1, 0, 0.5}, .factor_every = 2};
  std::vector<float> whole, single;
  hooks.step = [&](const StepOutcome& step) { whole.push_back(step.loss); };
  RoleOptions role;
  role.hooks = &hooks;
  run_role(job(6), role, stop);
  FedSteps steps(job(6), {.train = rows(), .rate_factors = {1, 0, 0.5}, .factor_every = 2});
  for (int i = 0; i < 6; ++i) {
    std::vector<Tensor> batch;
    for (const auto& feed : steps.feeds()) batch.push_back(rows()->find(feed.name)->data);
    single.push_back(steps.step(std::move(batch)).loss);
  }
  EXPECT_EQ(single, whole);
  EXPECT_EQ(whole[3], whole[2]) << "a rate of 0 moves nothing";
  EXPECT_NE(whole, run(6).losses);
}

TEST(RunHooksTest, AskedToStopItEndsBehindTheStepAndTellsItsValues) {
  const Ran ran = run(1000, {}, 0, 3);
  EXPECT_LT(ran.losses.size(), 10U);
  EXPECT_EQ(ran.result.exit, kExitTerminated);
  EXPECT_EQ(ran.result.last_step, ran.losses.size());
}

TEST(RunHooksTest, StepsOfSeveralProcessesAreRefused) {
  proto::Job several = job(1);
  several.mutable_strategy()->set_kind(proto::Strategy::PS);
  EXPECT_THAT(message_of([&] { FedSteps(several, {.train = rows()}); }),
              HasSubstr("strategy.kind must be LOCAL"));
}

TEST(ModelRunnerTest, PredictsWithTheValuesThatItIsGiven) {
  const Ran ran = run(50);
  ModelRunner runner(job(1), rows());
  runner.set_values(ran.values);
  // Labels may be absent.
  const auto features = table_of_arrays({{"x", rows()->find("x")->data}, {"y", rows()->find("y")->data}});
  const auto predicted = runner.predict(features, {runner.outputs().front()});
  ASSERT_THAT(predicted, SizeIs(1));
  EXPECT_EQ(predicted[0].shape()[0], 8);
  const MetricValues measured = runner.evaluate(rows());
  EXPECT_EQ(measured.rows, 8);
  EXPECT_LT(measured.value("rmse"), 7.0);
  EXPECT_THAT(message_of([&] {
                runner.predict(table_of_arrays({{"x", rows()->find("x")->data}}), {"value"});
              }),
              HasSubstr("'y'"));
}

}  // namespace
}  // namespace braid::worker
