// Strategy PS_ALLREDUCE: sparse tables on servers, all other variables on all workers. Whole jobs as
// processes: the losses of LOCAL and of PS, the same bits in each run, checkpoints that all strategies share,
// every way to start, lost tasks.
#include <gmock/gmock.h>
#include <signal.h>

#include <cmath>

#include "tests/integration/checkpoints.h"
#include "tests/support/in_some_attempt.h"
#include "tests/support/missing.h"

namespace braid::integration {
namespace {

using ::testing::HasSubstr;
using Strings = std::vector<std::string>;

constexpr int kMixedSteps = 20;

/// A bag and a table for two columns.
constexpr const char* kMixedJob = R"(
name: "both" seed: 3 steps: 20
model { name: "din" hidden: 8 embedding_dim: 8 sparse_tables: true }
input {
  format: GENERATOR generator { rows: 600 test_rows: 128 } global_batch_size: 48
  columns { name: "age" kind: NUMERIC }
  columns { name: "city" kind: CATEGORICAL buckets: 7 }
  columns { name: "shop" kind: CATEGORICAL buckets: 300 length: 3 }
  columns { name: "item" kind: CATEGORICAL buckets: 90 output: "item" }
  columns { name: "history" kind: CATEGORICAL buckets: 90 length: 5 output: "history" }
  columns { name: "clicked" kind: LABEL }
}
optimizer { kind: ADAM learning_rate: 0.01 }
evaluation { enabled: false }
streams { count: 1 policy: NONE }
runtime { intra_op_threads: 1 device: CPU }
)";

class PsAllReduceTest : public IntegrationTest {
 protected:
  Job job(Strings more = {}) const { return {write("job.pbtxt", kMixedJob), "", std::move(more)}; }
  Job both(Strings more = {}) const { return job(std::move(more)).with({"strategy.kind=PS_ALLREDUCE"}); }

  /// The losses, the same on all workers: of the global batch.
  std::vector<float> losses(const std::string& name, const Job& job, Cluster::Shape shape,
                            std::uint64_t first = 0, const Strings& arguments = {}) const {
    Cluster cluster(directory() / name, job, shape, arguments);
    cluster.expect_success();
    std::vector<float> leaders = losses_of(cluster.steps_file(0), first);
    for (int w = 1; w < shape.workers; ++w)
      EXPECT_EQ(losses_of(cluster.steps_file(w), first), leaders) << "worker " << w;
    return leaders;
  }
  std::vector<double> mean_losses(const std::string& name, const Job& job, Cluster::Shape shape) const {
    Cluster cluster(directory() / name, job, shape);
    cluster.expect_success();
    return cluster.mean_losses();
  }
  template <class Losses>
  static void expect_near(const std::vector<float>& got, const Losses& expected, const std::string& what) {
    ASSERT_EQ(got.size(), expected.size()) << what;
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
      worst = std::max(worst, std::abs(double{got[i]} - double{expected[i]}));
    std::printf("%s: largest difference of a loss %.2g\n", what.c_str(), worst);
    EXPECT_LT(worst, 1e-6) << what;
  }
};

TEST_F(PsAllReduceTest, OneWorkerHasTheBitsOfOneProcess) {
  for (const std::string optimizer : {"ADAM", "ADAGRAD", "SGD"}) {
    const Strings set{"optimizer.kind=" + optimizer};
    const std::vector<float> local = train("local-" + optimizer, job(set));
    ASSERT_EQ(local.size(), std::size_t{kMixedSteps});
    EXPECT_LT(local.back(), local.front()) << "it learns";
    EXPECT_EQ(losses("one-" + optimizer, both(set), {1, 2}), local) << optimizer;
  }
}

TEST_F(PsAllReduceTest, SeveralWorkersLoseAsServersAloneAndAsOneProcess) {
  const std::vector<float> local = train("local", job());
  for (const int workers : {2, 3}) {
    const std::string of = std::to_string(workers) + " workers";
    const std::vector<float> its = losses(of, both(), {workers, 1});
    expect_near(its, local, of + " against one process");
    expect_near(its, mean_losses(of + "-ps", job({"strategy.kind=PS"}), {workers, 1}), of + " against PS");
    EXPECT_EQ(losses(of + "-again", both(), {workers, 1}), its) << "equal bits in every run";
    EXPECT_EQ(losses(of + "-servers", both(), {workers, 2}), its) << "whatever the number of servers";
  }
}

TEST_F(PsAllReduceTest, WhateverElseAStepDoesKeepsItsBits) {
  const std::vector<float> plain = losses("plain", both(), {2, 2});
  for (const Strings& how : {Strings{"streams.count=3", "streams.policy=COST"},
                             {"staging.auto_stage=true"},
                             {"runtime.steps_in_flight=1"},
                             {"strategy.bucket_bytes=100"},
                             {"runtime.check_numerics=true"},
                             {"strategy.ps.pull_ahead=true"},
                             {"strategy.ps.shared_memory=false"}})
    EXPECT_EQ(losses(how.front(), both(how), {2, 2}), plain) << how.front();
}

TEST_F(PsAllReduceTest, WorkersMayHaveDifferentNumbersOfRowsAndPartsOfABatch) {
  for (const std::string& what :
       {std::string("input.global_batch_size=17"), std::string("optimizer.accumulate_steps=3")}) {
    const std::vector<float> local = train("local-" + what, job({what}));
    expect_near(losses(what, both({what}), {3, 1}), local, what);
  }
}

TEST_F(PsAllReduceTest, RowsMayBeUpdatedAsTheyArrive) {
  for (const char* consistency : {"ASP", "SSP"}) {
    const std::vector<float> its =
        losses(consistency, both({std::string("strategy.consistency=") + consistency, "steps=60"}), {2, 2});
    ASSERT_EQ(its.size(), 60U);
    EXPECT_LT(its.back(), its.front()) << consistency;
  }
}

TEST_F(PsAllReduceTest, UnderMpirunItHasTheBitsOfTheRing) {
  if (mpirun_is_missing()) GTEST_SKIP() << missing::kMpirun;
  const std::vector<float> ring = losses("ring", both(), {2, 1});
  for (const std::string backend : {"RING", "MPI"}) {
    const Path place = directory() / ("under-" + backend);
    std::filesystem::create_directories(place);
    const Job logged =
        both({"strategy.backend=" + backend, "metrics.steps_file=" + (place / "%r.steps").string()});
    Strings arguments = logged.arguments();
    arguments.insert(arguments.end(), {"--ps-ranks", "1"});
    Process mpirun(under_mpirun(3, arguments), {}, place / "mpirun");
    EXPECT_EQ(mpirun.exit_code(), 0) << mpirun.err();
    for (const char* worker : {"worker-0.steps", "worker-1.steps"})
      EXPECT_EQ(losses_of(place / worker), ring) << backend;
  }
}

TEST_F(PsAllReduceTest, TheLauncherStartsIt) {
  const Strings train = both({"evaluation.enabled=true"}).arguments();
  Strings arguments{"launch", "--workers", "2", "--ps", "1", "--"};
  arguments.insert(arguments.end(), train.begin(), train.end());
  const auto launcher = run("launch", arguments);
  EXPECT_EQ(launcher->exit_code(), 0) << launcher->err();
  EXPECT_EQ(result_of(*launcher).steps, std::uint64_t{kMixedSteps});
}

TEST_F(PsAllReduceTest, AnEvaluationSeesRowsAndOtherVariables) {
  const Strings evaluated{"evaluation.enabled=true", "evaluation.every_steps=7"};
  const auto quality = [&](const std::string& name, const Job& job, Cluster::Shape shape) {
    Cluster cluster(directory() / name, job, shape);
    cluster.expect_success();
    return result_of(cluster.worker(0)).quality.value_or(-1);
  };
  const double local = quality("local", job(evaluated), {1, 0});
  EXPECT_GT(local, 0);
  EXPECT_EQ(quality("one", both(evaluated), {1, 2}), local);
  EXPECT_NEAR(quality("two", both(evaluated), {2, 2}), local, 1e-4);
}

TEST_F(PsAllReduceTest, AResumedRunHasTheBitsOfOneThatWasNotInterrupted) {
  const std::vector<float> whole = losses("whole", both(), {2, 2});
  const Path root = directory() / "checkpoints";
  losses("begun", both(checkpoints_in(root, 5)).with({"steps=10"}), {2, 2});
  const std::vector<float> rest = losses("resumed", both(checkpoints_in(root, 5)), {2, 1}, 10, {"--resume"});
  EXPECT_EQ(rest, std::vector<float>(whole.begin() + 10, whole.end()));
}

/// Each goes on where the one before it stopped.
TEST_F(PsAllReduceTest, ACheckpointIsForAnyNumberOfTasksAndEveryStrategy) {
  const std::vector<float> whole = train("whole", job({"steps=30"}));
  const Path root = directory() / "checkpoints";
  const Job kept = job(checkpoints_in(root, 5));
  struct Leg {
    const char* kind;
    Cluster::Shape shape;
  };
  int step = 0;
  for (const Leg& leg : {Leg{"PS_ALLREDUCE", {2, 2}}, Leg{"LOCAL", {1, 0}}, Leg{"PS_ALLREDUCE", {3, 1}},
                         Leg{"PS", {2, 1}}, Leg{"PS_ALLREDUCE", {1, 2}}, Leg{"HYBRID", {2, 0}}}) {
    const std::string name = std::string(leg.kind) + " from " + std::to_string(step);
    Cluster cluster(
        directory() / name,
        kept.with({"steps=" + std::to_string(step + 5), std::string("strategy.kind=") + leg.kind}), leg.shape,
        step == 0 ? Strings{} : Strings{"--resume"});
    cluster.expect_success();
    const std::vector<double> its = cluster.mean_losses(static_cast<std::uint64_t>(step));
    ASSERT_EQ(its.size(), 5U) << name;
    for (std::size_t i = 0; i < its.size(); ++i)
      EXPECT_NEAR(its[i], whole[static_cast<std::size_t>(step) + i], 5e-6) << name << ", step " << step + i;
    step += 5;
  }
}

TEST_F(PsAllReduceTest, ItsCheckpointsHaveTheValuesOfOneProcess) {
  const Path served = directory() / "served", local = directory() / "local";
  train("alone", job(checkpoints_in(local, 0)));
  losses("served", both(checkpoints_in(served, 0)), {1, 2});
  Values alone = values_of_newest(local), its = values_of_newest(served);
  int rows = 0;
  for (const auto& [name, value] : its) {
    if (name.ends_with("]")) {
      ++rows;
      continue;
    }
    EXPECT_EQ(value, alone.at(name)) << name;
  }
  EXPECT_GT(rows, 100);
}

TEST_F(PsAllReduceTest, AskedToStopAllSaveTheSameStepAndGoOnFromThere) {
  for (const bool server : {false, true}) {
    const std::string of = server ? "server" : "worker";
    const Path root = directory() / ("checkpoints-" + of);
    const Job longer = both({"steps=1000000", "metrics.progress_seconds=0.05"}).with(checkpoints_in(root, 0));
    Cluster cluster(directory() / of, longer, {2, 1});
    EXPECT_TRUE(cluster.worker(0).says("step 5")) << cluster.worker(0).err();
    (server ? cluster.server(0) : cluster.worker(1)).signal(SIGTERM);
    EXPECT_EQ(cluster.exit_codes(), (std::vector<int>{143, 143, 143})) << cluster.worker(0).err();
    const auto last = result_of(cluster.worker(0)).last_step;
    EXPECT_EQ(result_of(cluster.worker(1)).last_step, last);
    EXPECT_EQ(checkpointed_steps(root), std::vector<std::uint64_t>{last});
    const Job rest = longer.with({"steps=" + std::to_string(last + 3)});
    EXPECT_EQ(losses("rest-" + of, rest, {2, 1}, last, {"--resume"}).size(), 3U);
  }
}

TEST_F(PsAllReduceTest, WhatCannotBeIsRefusedWithAWayOut) {
  const auto refused = [&](const std::string& name, const Job& job, Cluster::Shape shape,
                           const std::string& text) {
    Cluster cluster(directory() / name, job, shape);
    EXPECT_EQ(cluster.worker(0).exit_code(), 2) << name;
    EXPECT_THAT(cluster.worker(0).err(), HasSubstr(text));
  };
  refused("dense", both({"model.sparse_tables=false"}), {2, 1}, "set model.sparse_tables: true");
  refused("timed", both({"strategy.consistency=TIMED"}), {2, 1}, "TIMED goes on without late workers");
  refused("no-server", both(), {2, 0}, "needs at least one ps task");
  refused("nccl", both({"strategy.backend=NCCL"}), {2, 1}, "is for GPUs");
}

class PsAllReduceFaultTest : public PsAllReduceTest, public ::testing::WithParamInterface<int> {
 protected:
  Job longer() const {
    return both({"steps=1000000", "strategy.deadline_seconds=3", "metrics.progress_seconds=0.05"});
  }
};

TEST_P(PsAllReduceFaultTest, ALostWorkerIsNamedByTheDeadline) {
  in_some_attempt([&] {
    Cluster cluster(directory() / "job", longer(), {3, 1});
    ASSERT_TRUE(cluster.worker(0).says("step 5")) << cluster.worker(0).err();
    cluster.worker(2).signal(GetParam());
    for (const int worker : {0, 1}) {
      EXPECT_EQ(cluster.worker(worker).exit_code(std::chrono::seconds(15)), 138);
      EXPECT_THAT(cluster.worker(worker).err(), ::testing::ContainsRegex("rank 2 \\(|worker 2 \\("));
      EXPECT_THAT(cluster.worker(worker).err(), HasSubstr("start all its workers again"));
    }
  });
}

TEST_P(PsAllReduceFaultTest, ALostServerIsNamedByTheDeadline) {
  in_some_attempt([&] {
    Cluster cluster(directory() / "job", longer(), {2, 2});
    ASSERT_TRUE(cluster.worker(0).says("step 5")) << cluster.worker(0).err();
    cluster.server(1).signal(GetParam());
    for (const int worker : {0, 1}) {
      EXPECT_EQ(cluster.worker(worker).exit_code(std::chrono::seconds(15)), 138);
      EXPECT_THAT(cluster.worker(worker).err(), HasSubstr("server 1 (" + cluster.server_address(1)));
    }
    EXPECT_EQ(cluster.server(0).exit_code(std::chrono::seconds(15)), 138);
  });
}

INSTANTIATE_TEST_SUITE_P(Signals, PsAllReduceFaultTest, ::testing::Values(SIGKILL, SIGSTOP),
                         [](const auto& info) { return info.param == SIGKILL ? "Killed" : "Stopped"; });

}  // namespace
}  // namespace braid::integration
