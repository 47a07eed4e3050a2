// Rows cached on the workers (strategy.ps.cache_rows), in whole jobs of processes: after 1,000 steps the
// checkpoint without a cache, whatever its size.
#include <gmock/gmock.h>
#include <signal.h>

#include "tests/integration/checkpoints.h"

namespace braid::integration {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Strings = std::vector<std::string>;

/// 10,007 rows of 8 numbers; a worker's batch names at most 80 of them.
constexpr const char* kCachedJob = R"(
name: "cached" seed: 5 steps: 1000
model { name: "din" hidden: 8 embedding_dim: 8 sparse_tables: true }
input {
  format: GENERATOR generator { rows: 4000 test_rows: 128 } global_batch_size: 16
  columns { name: "age" kind: NUMERIC }
  columns { name: "city" kind: CATEGORICAL buckets: 7 }
  columns { name: "shop" kind: CATEGORICAL buckets: 5000 length: 3 }
  columns { name: "item" kind: CATEGORICAL buckets: 5000 output: "item" }
  columns { name: "history" kind: CATEGORICAL buckets: 5000 length: 5 output: "history" }
  columns { name: "clicked" kind: LABEL }
}
optimizer { kind: ADAM learning_rate: 0.01 }
evaluation { enabled: false }
streams { count: 1 policy: NONE }
runtime { intra_op_threads: 1 device: CPU }
)";

class PsCacheJobTest : public IntegrationTest {
 protected:
  Path train_into(const std::string& name, const std::string& kind, const Strings& set,
                  Cluster::Shape shape = {2, 1}) {
    const Path root = directory() / (name + "-checkpoints");
    Job job{write("job.pbtxt", kCachedJob), "", checkpoints_in(root, 0)};
    Cluster cluster(directory() / name, job.with({"strategy.kind=" + kind}).with(set), shape);
    cluster.expect_success();
    if (name != "none") {
      EXPECT_THAT(cluster.worker(0).out(), ContainsRegex("row cache: [0-9]+ rows asked for")) << name;
      std::printf("%s: %s\n", name.c_str(), line_of(cluster.worker(0).out(), "row cache: ").c_str());
    }
    return root;
  }
  void expect_same(const Path& its, const Path& expected, const std::string& name) {
    const auto diff = run("diff-" + name, {"ckpt", "diff", its.string(), expected.string()});
    EXPECT_EQ(diff->exit_code(), 0) << name << diff->out();
    EXPECT_THAT(diff->out(), HasSubstr(" 0 different")) << name;
  }
  static std::string line_of(const std::string& text, const std::string& mark) {
    const std::size_t at = text.find(mark);
    return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
  }
};

TEST_F(PsCacheJobTest, AfterAThousandStepsTheCheckpointIsThatOfARunWithout) {
  const Path without = train_into("none", "PS", {});
  const auto expect_same_of = [&](const std::string& name, const Strings& set) {
    expect_same(train_into(name, "PS", set), without, name);
  };
  expect_same_of("1 percent", {"strategy.ps.cache_rows=100"});
  expect_same_of("10 percent", {"strategy.ps.cache_rows=1000"});
  expect_same_of("100 percent", {"strategy.ps.cache_rows=10007"});
  expect_same_of("10 percent ahead", {"strategy.ps.cache_rows=1000", "strategy.ps.pull_ahead=true"});
}

/// One worker is the rows' home, and the servers get them in the end.
TEST_F(PsCacheJobTest, AtHomeTheCheckpointIsThatOfARunWithoutWhateverHasRoom) {
  const Path without = train_into("none", "PS", {}, {1, 2});
  for (const char* kind : {"PS", "PS_ALLREDUCE"})
    for (const char* rows : {"160", "1000", "10007"}) {
      const std::string name = std::string(kind) + " " + rows;
      const Strings set{std::string("strategy.ps.cache_rows=") + rows, "runtime.steps_in_flight=3",
                        "streams.count=3", "streams.policy=COST"};
      expect_same(train_into(name, kind, set, {1, 2}), without, name);
    }
}

/// Killed behind a checkpoint, once with the servers and once without, it ends as a run that was not.
TEST_F(PsCacheJobTest, AtHomeAKilledWorkerGoesOnFromItsCheckpoint) {
  const Path without = train_into("none", "PS", {}, {1, 2});
  for (const bool all : {false, true}) {
    const std::string name = all ? "all" : "worker";
    const Path root = directory() / (name + "-checkpoints");
    const Job job = Job{write("job.pbtxt", kCachedJob), "", checkpoints_in(root, 150)}.with(
        {"strategy.kind=PS", "strategy.ps.cache_rows=300"});
    Cluster cluster(directory() / name, job, {1, 2});
    EXPECT_TRUE(cluster.worker(0).says("checkpoint of step 300")) << cluster.worker(0).err();
    cluster.worker(0).signal(SIGKILL);
    if (!all) {
      cluster.start_again(0, {"--resume"});
      EXPECT_EQ(cluster.exit_codes(), (std::vector<int>{0, 0, 0}));
    } else {
      for (int server = 0; server < 2; ++server) cluster.server(server).signal(SIGKILL);
      cluster.exit_codes();
      Cluster(directory() / (name + "-again"), job, {1, 2}, {"--resume"}).expect_success();
    }
    expect_same(root, without, name);
  }
}

TEST_F(PsCacheJobTest, FewerRowsThanABatchNeedsAreRefused) {
  Job job{write("job.pbtxt", kCachedJob), "", {"strategy.kind=PS", "strategy.ps.cache_rows=79"}};
  Cluster cluster(directory() / "job", job, {2, 1});
  EXPECT_EQ(cluster.worker(0).exit_code(), 2);
  EXPECT_THAT(cluster.worker(0).err(), HasSubstr("a batch may name 80 rows"));
}

/// On trial, without a word in the job's rounds: what servers answer has its time, too.
TEST_F(PsCacheJobTest, StreamsAreMeasuredWithTheServersThatTheJobHas) {
  for (const char* rows : {"0", "100"}) {
    Job job{write("job.pbtxt", kCachedJob), "", {}};
    Cluster cluster(directory() / rows,
                    job.with({"strategy.kind=PS", "steps=20", "streams.policy=AUTO", "streams.count=2",
                              "streams.measure_seconds=0.1", std::string("strategy.ps.cache_rows=") + rows}),
                    {2, 1});
    cluster.expect_success();
    for (int worker = 0; worker < 2; ++worker)
      EXPECT_THAT(cluster.worker(worker).err(), HasSubstr("AUTO took")) << rows;
    for (int worker = 0; worker < 2; ++worker)
      EXPECT_THAT(cluster.worker(worker).err(), HasSubstr("medians of a step in")) << rows;
  }
}

}  // namespace
}  // namespace braid::integration
