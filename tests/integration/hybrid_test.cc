// Strategy HYBRID: tables spread over the workers. Whole jobs as processes over TCP: the same losses as one
// process, the same bits whatever the plan, checkpoints that all strategies share, a lost worker.
#include <gmock/gmock.h>
#include <signal.h>

#include <cmath>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "tests/integration/checkpoints.h"
#include "tests/support/missing.h"

namespace braid::integration {
namespace {

using ::testing::HasSubstr;

constexpr int kHybridSteps = 20;
constexpr double kHybridNear = 1e-6;

/// Small tables, lists, a table for two columns.
constexpr const char* kHybridJob = R"(
name: "sharded" seed: 3 steps: 20
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

/// Of the tables that `match` fits.
std::string of(const std::string& match, const std::string& plan) {
  return "table { match: '" + match + "' plan: " + plan + " } ";
}
std::vector<std::string> plans(const std::string& tables) { return {"strategy.hybrid=" + tables}; }
std::vector<std::string> plan(const std::string& name) { return plans(of(".*", name)); }

class HybridTest : public IntegrationTest {
 protected:
  Job job(std::vector<std::string> more = {}) const {
    return {write("job.pbtxt", kHybridJob), "", std::move(more)};
  }
  static Job hybrid(const Job& job, const std::string& plan_name) {
    return job.with({"strategy.kind=HYBRID"}).with(plan(plan_name));
  }
  /// The losses, the same on all workers.
  std::vector<float> losses(const std::string& name, const Job& job, int workers, std::uint64_t first = 0,
                            const std::vector<std::string>& arguments = {}, int servers = 0) const {
    Cluster cluster(directory() / name, job, {workers, servers}, arguments);
    cluster.expect_success();
    const std::vector<float> leaders = losses_of(cluster.steps_file(0), first);
    for (int w = 1; w < workers && servers == 0; ++w)
      EXPECT_EQ(losses_of(cluster.steps_file(w), first), leaders) << "worker " << w;
    return leaders;
  }
  static void expect_near(const std::vector<float>& got, const std::vector<float>& expected,
                          const std::string& what) {
    ASSERT_EQ(got.size(), expected.size()) << what;
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
      worst = std::max(worst, std::abs(double{got[i]} - expected[i]));
    std::printf("%s: largest difference of a loss %.2g\n", what.c_str(), worst);
    EXPECT_LT(worst, kHybridNear) << what;
  }
};

TEST_F(HybridTest, OneWorkerHasTheBitsOfOneProcess) {
  const std::vector<float> local = train("local", job());
  ASSERT_EQ(local.size(), std::size_t{kHybridSteps});
  EXPECT_LT(local.back(), local.front()) << "it learns";
  for (const char* name : {"ROW", "TABLE", "COLUMN", "REPLICATE"})
    EXPECT_EQ(losses(std::string("one-") + name, hybrid(job(), name), 1), local) << name;
}

class HybridPlansTest : public HybridTest, public ::testing::WithParamInterface<int> {};

TEST_P(HybridPlansTest, AllPlansHaveTheSameBitsAndLoseAsOneProcess) {
  const std::vector<float> local = train("local", job());
  std::vector<float> rows;
  for (const char* name : {"ROW", "TABLE", "COLUMN", "REPLICATE"}) {
    if (std::string(name) == "COLUMN" && 8 % GetParam() != 0) continue;
    const std::vector<float> its = losses(name, hybrid(job(), name), GetParam());
    if (rows.empty()) {
      rows = its;
      expect_near(its, local, std::to_string(GetParam()) + " workers");
    }
    EXPECT_EQ(its, rows) << name;
  }
  // Each of another kind, the rest as the planner has it.
  const Job mixed = job({"strategy.kind=HYBRID"}).with(plans(of("items/.*", "TABLE") + of("shop/.*", "ROW")));
  EXPECT_EQ(losses("mixed", mixed, GetParam()), rows);
}

INSTANTIATE_TEST_SUITE_P(Workers, HybridPlansTest, ::testing::Values(2, 3, 4, 8));

TEST_F(HybridTest, RanksMayHaveDifferentNumbersOfRowsAndPartsOfABatch) {
  for (const std::string& what :
       {std::string("input.global_batch_size=17"), std::string("optimizer.accumulate_steps=3"),
        std::string("optimizer.clip_norm=0.05")}) {
    const Job odd = job({what});
    const std::vector<float> local = train("local-" + what, odd);
    for (const char* name : {"ROW", "TABLE", "REPLICATE"})
      expect_near(losses(name + what, hybrid(odd, name), 3), local, what + " " + name);
  }
}

TEST_F(HybridTest, AllIdsMayBeEqualAndTablesSmallerThanTheGroup) {
  const std::vector<std::string> one_city = {"input.columns[1].buckets=1", "input.columns[2].buckets=2"};
  const std::vector<float> local = train("local", job(one_city));
  for (const char* name : {"ROW", "TABLE"})
    expect_near(losses(name, hybrid(job(one_city), name), 4), local, name);
}

TEST_F(HybridTest, StreamsAndStagesKeepItsBits) {
  const std::vector<float> plain = losses("plain", hybrid(job(), "ROW"), 2);
  for (const std::vector<std::string>& how :
       {std::vector<std::string>{"streams.count=3", "streams.policy=COST"},
        {"staging.auto_stage=true"},
        {"runtime.steps_in_flight=1"},
        {"strategy.bucket_bytes=100"},
        {"runtime.check_numerics=true"}})
    EXPECT_EQ(losses(how.front(), hybrid(job(how), "ROW"), 2), plain) << how.front();
}

TEST_F(HybridTest, UnderMpirunItHasTheBitsOfTheRing) {
  if (mpirun_is_missing()) GTEST_SKIP() << missing::kMpirun;
  const std::vector<float> ring = losses("ring", hybrid(job(), "ROW"), 2);
  const Job logged = hybrid(job({"strategy.backend=MPI"}), "ROW")
                         .with({"metrics.steps_file=" + (directory() / "%r.steps").string()});
  Process mpirun(under_mpirun(2, logged.arguments()), {}, directory() / "mpirun");
  EXPECT_EQ(mpirun.exit_code(), 0) << mpirun.err();
  for (const char* worker : {"worker-0.steps", "worker-1.steps"})
    EXPECT_EQ(losses_of(directory() / worker), ring);
}

/// Dense sums of a pair of workers are made in one order, so the rest of a run has the same bits.
TEST_F(HybridTest, AResumedRunHasTheBitsOfOneThatWasNotInterrupted) {
  for (const char* name : {"ROW", "COLUMN"}) {
    const std::vector<float> whole = losses("whole", hybrid(job(), name), 2);
    const Path root = directory() / (std::string(name) + "-checkpoints");
    losses("begun", hybrid(job(checkpoints_in(root, 5)), name).with({"steps=10"}), 2);
    const std::vector<float> rest =
        losses("resumed", hybrid(job(checkpoints_in(root, 5)), name), 2, 10, {"--resume"});
    EXPECT_EQ(rest, std::vector<float>(whole.begin() + 10, whole.end())) << name;
  }
}

TEST_F(HybridTest, AResumedJobGoesOnWithItsPlanOfTables) {
  const Path root = directory() / "checkpoints";
  const auto kept = [&] { return read_file(root / "tables.plan"); };
  const Job planned = job(checkpoints_in(root, 5)).with({"strategy.kind=HYBRID"});
  Cluster first(directory() / "first", planned.with({"steps=10"}), {2, 0});
  first.expect_success();
  const std::string text = kept();
  EXPECT_THAT(text, ::testing::StartsWith("braid table plan 1\nmade for "));
  EXPECT_THAT(text, HasSubstr(" measured;"));
  EXPECT_THAT(first.worker(0).err(), HasSubstr("step: predicted "));
  EXPECT_THAT(first.worker(0).err(), HasSubstr(" received, "));
  Cluster second(directory() / "second", planned.with({"steps=15"}), {2, 0}, {"--resume"});
  second.expect_success();
  EXPECT_EQ(kept(), text) << "planned again, it would have other costs";
  Cluster others(directory() / "others", planned.with({"steps=20", "strategy.hybrid=memory_bytes: 10000000"}),
                 {2, 0}, {"--resume"});
  others.expect_success();
  EXPECT_THAT(others.worker(0).err(), HasSubstr("was made for other tables, workers or settings"));
  EXPECT_NE(kept(), text);
  std::ofstream(root / "tables.plan") << "braid table plan 1\nmade f";
  Cluster broken(directory() / "broken", planned.with({"steps=25"}), {2, 0}, {"--resume"});
  broken.expect_success();
  EXPECT_THAT(broken.worker(0).err(), HasSubstr("tables.plan:2: 'made f' is not a line of a table plan"));
  EXPECT_THAT(kept(), HasSubstr("\ntable "));
}

TEST_F(HybridTest, ALimitThatNoPlanKeepsEndsAllWorkersWithTheLeadersWords) {
  const Job small = job({"strategy.kind=HYBRID", "strategy.hybrid=memory_bytes: 100"});
  Cluster cluster(directory() / "small", small, {3, 0});
  for (int w = 0; w < 3; ++w) {
    EXPECT_EQ(cluster.worker(w).exit_code(), kExitBadInput) << w;
    EXPECT_THAT(cluster.worker(w).err(),
                HasSubstr("strategy.hybrid.memory_bytes 100: tables and slots take"));
  }
}

/// Counted from the batches, and in no place twice.
TEST_F(HybridTest, HotRowsChangeNoBitOfLossesCheckpointsAndEvaluations) {
  const Job evaluated = job({"evaluation.enabled=true", "evaluation.every_steps=7"});
  const auto trained = [&](const std::string& name, const std::string& more) {
    const Job its = evaluated.with({"strategy.kind=HYBRID"})
                        .with(plans("table { match: '.*' plan: ROW " + more + " }"))
                        .with(checkpoints_in(directory() / (name + "-checkpoints"), 10));
    Cluster cluster(directory() / name, its, {3, 0});
    cluster.expect_success();
    const auto quality = result_of(cluster.worker(0)).quality;
    EXPECT_EQ(cluster.worker(0).err().find(", 9 hot rows") == std::string::npos, more.empty());
    return std::pair(losses_of(cluster.steps_file(0), 0), quality);
  };
  const auto cold = trained("cold", ""), hot = trained("hot", "hot_rows: 9");
  EXPECT_EQ(hot, cold);
  const auto diff = run("diff", {"ckpt", "diff", (directory() / "hot-checkpoints").string(),
                                 (directory() / "cold-checkpoints").string()});
  EXPECT_EQ(diff->exit_code(), 0) << diff->out();
  EXPECT_THAT(diff->out(), HasSubstr(" 0 different"));
  EXPECT_THAT(read_file(directory() / "hot-checkpoints" / "tables.plan"), HasSubstr("\nhot "));
}

/// Four workers, two, one process, servers, and back: each goes on where the one before it stopped.
TEST_F(HybridTest, ACheckpointIsForAnyNumberOfWorkersAndEveryStrategy) {
  const Job longer = job({"steps=40"});
  const std::vector<float> whole = train("whole", longer);
  const Path root = directory() / "checkpoints";
  struct Leg {
    const char* name;
    Job job;
    int workers, servers;
  };
  const Job kept = job(checkpoints_in(root, 5));
  const Job hot =
      kept.with({"strategy.kind=HYBRID"}).with(plans("table { match: '.*' plan: ROW hot_rows: 20 }"));
  const std::vector<Leg> legs{{"four by rows", hybrid(kept, "ROW"), 4, 0},
                              {"three with hot rows", hot, 3, 0},
                              {"two by columns", hybrid(kept, "COLUMN"), 2, 0},
                              {"one process", kept, 1, 0},
                              {"servers", kept.with({"strategy.kind=PS"}), 2, 2},
                              {"two with hot rows", hot, 2, 0},
                              {"two whole tables", hybrid(kept, "TABLE"), 2, 0},
                              {"all-reduce", kept.with({"strategy.kind=ALLREDUCE"}), 2, 0}};
  int step = 0;
  for (const Leg& leg : legs) {
    const std::string steps = "steps=" + std::to_string(step + 5);
    Cluster cluster(directory() / leg.name, leg.job.with({steps}), {leg.workers, leg.servers},
                    step == 0 ? std::vector<std::string>{} : std::vector<std::string>{"--resume"});
    cluster.expect_success();
    const std::vector<double> its = cluster.mean_losses(static_cast<std::uint64_t>(step));
    ASSERT_EQ(its.size(), 5U) << leg.name;
    for (std::size_t i = 0; i < its.size(); ++i)
      EXPECT_NEAR(its[i], whole[static_cast<std::size_t>(step) + i], 5e-6)
          << leg.name << ", step " << step + i;
    step += 5;
  }
}

TEST_F(HybridTest, ItsCheckpointsHaveTheArraysOfOneProcess) {
  const Path one = directory() / "one", two = directory() / "two", local = directory() / "local";
  train("alone", job(checkpoints_in(local, 0)));
  losses("one worker", hybrid(job(checkpoints_in(one, 0)), "ROW"), 1);
  const auto same = run("same", {"ckpt", "diff", one.string(), local.string()});
  EXPECT_EQ(same->exit_code(), 0) << same->out();
  EXPECT_THAT(same->out(), HasSubstr(" 0 different"));
  losses("two workers", hybrid(job(checkpoints_in(two, 0)), "COLUMN"), 2);
  const auto near = run("near", {"ckpt", "diff", two.string(), local.string(), "--tolerance", "1e-5"});
  EXPECT_THAT(near->out(), HasSubstr(" 0 different")) << near->out();
}

TEST_F(HybridTest, AnEvaluationSeesTheRowsOfAllWorkers) {
  const std::vector<std::string> evaluated{"evaluation.enabled=true", "evaluation.every_steps=7"};
  const auto quality = [&](const std::string& name, const Job& job, int workers) {
    Cluster cluster(directory() / name, job, {workers, 0});
    cluster.expect_success();
    return result_of(cluster.worker(0)).quality.value_or(-1);
  };
  const double local = quality("local", job(evaluated), 1);
  EXPECT_GT(local, 0);
  for (const char* name : {"ROW", "TABLE", "COLUMN"}) {
    const Path root = directory() / (std::string(name) + "-checkpoints");
    const Job both = hybrid(job(evaluated), name).with(checkpoints_in(root, 7));
    EXPECT_NEAR(quality(name, both, 2), local, 1e-4) << name;
    EXPECT_EQ(checkpointed_steps(root), (std::vector<std::uint64_t>{14, 20})) << name;
  }
}

TEST_F(HybridTest, WhatCannotBeIsRefusedWithAWayOut) {
  const auto refused = [&](const std::string& name, const Job& job, const std::string& text) {
    Cluster cluster(directory() / name, job, {2, 0});
    EXPECT_EQ(cluster.exit_codes(), (std::vector<int>{2, 2})) << name;
    EXPECT_THAT(cluster.worker(0).err(), HasSubstr(text));
  };
  const Job plain = job({"strategy.kind=HYBRID"});
  refused("pattern", plain.with(plans(of("none/.*", "ROW"))), "fits no table; the model's are: ");
  refused("columns", plain.with(plan("COLUMN")).with({"model.embedding_dim=3"}),
          "3 columns cannot be dealt to 2 workers");
  refused("memory", plain.with({"strategy.hybrid.memory_bytes=1000"}), "tables and slots take");
  refused("clock", plain.with(checkpoints_in(directory() / "c", 0)).with({"checkpoint.every_seconds=1"}),
          "set checkpoint.every_steps");
}

TEST_F(HybridTest, ThePlanIsShownWithoutWorkers) {
  const Job planned = job({"strategy.kind=HYBRID"}).with(plans(of("items/.*", "ROW")));
  std::vector<std::string> arguments{"graph", "plan", "--workers", "8"};
  for (const std::string& argument : planned.arguments())
    if (argument != "train") arguments.push_back(argument);
  const auto shown = run("plan", arguments);
  EXPECT_EQ(shown->exit_code(), 0) << shown->err();
  EXPECT_THAT(shown->out(), ::testing::ContainsRegex("table items/table +.91,8. ROW .asked for.: "));
  EXPECT_THAT(shown->out(), ::testing::ContainsRegex("table city/table +.7,8. REPLICATE: "));
  EXPECT_THAT(shown->out(), HasSubstr("braid.AllToAll"));
  EXPECT_THAT(shown->out(), ::testing::ContainsRegex("step: predicted .* us if nothing overlaps: "));
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), arguments.begin(), arguments.end());
    return more;
  };
  const auto json = run("json", with({"--json"}));
  EXPECT_THAT(json->out(), HasSubstr("\"sharded_tables\": {")) << json->err();
  EXPECT_THAT(json->out(), HasSubstr("\"name\":\"items/table\""));
  const auto card = run("card", with({"--card", "H200"}));
  EXPECT_THAT(card->out(), HasSubstr("step: costs of H200: ")) << card->err();
  EXPECT_THAT(card->out(), ::testing::ContainsRegex("all ids|dense sums"));
  EXPECT_EQ(run("none", with({"--card", "H201"}))->exit_code(), kExitBadInput);
}

TEST_F(HybridTest, AskedToStopAllSaveTheSameStepAndGoOnFromThere) {
  const Path root = directory() / "checkpoints";
  const Job longer =
      hybrid(job({"steps=1000000", "metrics.progress_seconds=0.05"}), "ROW").with(checkpoints_in(root, 0));
  Cluster cluster(directory() / "job", longer, {2, 0});
  EXPECT_TRUE(cluster.worker(0).says("step 5")) << cluster.worker(0).err();
  cluster.worker(1).signal(SIGTERM);
  EXPECT_EQ(cluster.exit_codes(), (std::vector<int>{143, 143})) << cluster.worker(0).err();
  const auto last = result_of(cluster.worker(0)).last_step;
  EXPECT_EQ(result_of(cluster.worker(1)).last_step, last);
  EXPECT_EQ(checkpointed_steps(root), std::vector<std::uint64_t>{last});
  const Job rest = longer.with({"steps=" + std::to_string(last + 3)});
  EXPECT_EQ(losses("rest", rest, 2, last, {"--resume"}).size(), 3U);
}

class HybridFaultTest : public HybridTest, public ::testing::WithParamInterface<int> {};

TEST_P(HybridFaultTest, ALostWorkerIsNamedByTheDeadline) {
  const Job longer =
      hybrid(job({"steps=1000000", "strategy.deadline_seconds=3", "metrics.progress_seconds=0.05"}), "ROW");
  Cluster cluster(directory() / "job", longer, {3, 0});
  EXPECT_TRUE(cluster.worker(0).says("step 5")) << cluster.worker(0).err();
  cluster.worker(2).signal(GetParam());
  for (const int worker : {0, 1}) {
    EXPECT_EQ(cluster.worker(worker).exit_code(std::chrono::seconds(15)), 138);
    EXPECT_THAT(cluster.worker(worker).err(), HasSubstr("rank 2 ("));
  }
}

INSTANTIATE_TEST_SUITE_P(Signals, HybridFaultTest, ::testing::Values(SIGKILL, SIGSTOP),
                         [](const auto& info) { return info.param == SIGKILL ? "Killed" : "Stopped"; });

/// Shipped jobs, every table by rows.
struct Shipped {
  const char* name;
  const char* file;
  std::vector<std::string> set;
};
void PrintTo(const Shipped& model, std::ostream* out) { *out << model.name; }

class HybridModelTest : public IntegrationTest, public ::testing::WithParamInterface<Shipped> {};

TEST_P(HybridModelTest, TwoWorkersLoseAsOneProcess) {
  Job job{GetParam().file, "", GetParam().set};
  job = job.with({"runtime.intra_op_threads=1", "runtime.device=CPU", "evaluation.enabled=false", "steps=20",
                  "streams.policy=NONE", "streams.count=1", "model.sparse_tables=true"});
  if (std::string(GetParam().file).find("criteo") != std::string::npos) {
    job.data = directory() / "criteo";
    const auto made =
        run("data", {"data", "criteo", "--rows", "3000", "--seed", "3", "--out", job.data.string()});
    ASSERT_EQ(made->exit_code(), 0) << made->err();
  }
  const std::vector<float> local = train("local", job);
  Cluster cluster(directory() / "two", job.with({"strategy.kind=HYBRID"}).with(plan("ROW")), {2, 0});
  cluster.expect_success();
  const std::vector<double> shared = cluster.mean_losses();
  ASSERT_EQ(shared.size(), local.size());
  double worst = 0;
  for (std::size_t i = 0; i < local.size(); ++i) worst = std::max(worst, std::abs(shared[i] - local[i]));
  std::printf("largest difference of a loss %.2g\n", worst);
  EXPECT_LT(worst, kHybridNear * std::max(1.0F, local[0]));
}

INSTANTIATE_TEST_SUITE_P(
    Models, HybridModelTest,
    ::testing::Values(
        Shipped{"dlrm", "dlrm_criteo.pbtxt", {"input.global_batch_size=64", "model.hash_buckets=1000"}},
        Shipped{"deepfm", "deepfm_criteo.pbtxt", {"input.global_batch_size=64", "model.hash_buckets=1000"}},
        Shipped{"wide_deep", "wide_deep_generated.pbtxt", {"input.global_batch_size=64"}},
        Shipped{"mmoe",
                "mmoe_generated.pbtxt",
                {"input.global_batch_size=64", "model.hidden=8,4", "input.generator.rows=2000"}},
        Shipped{"din", "din_generated.pbtxt", {"input.global_batch_size=64"}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace braid::integration
