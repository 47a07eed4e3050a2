// Global batches that the workers do not divide: each row counts the same, so the losses and the variables
// are those of one worker that has all rows.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "tests/integration/checkpoints.h"

namespace braid::integration {
namespace {

using ::testing::HasSubstr;

constexpr int kUnevenRows = 17, kSteps = 30;
constexpr double kNear = 1e-6;

/// Worker r's rows of a batch of 17.
std::vector<int> parts(int workers) {
  std::vector<int> rows;
  for (int r = 0; r < workers; ++r)
    rows.push_back(kUnevenRows / workers + (r < kUnevenRows % workers ? 1 : 0));
  return rows;
}

struct Shared {
  const char* name;
  const char* strategy;
  int workers, servers;
};

class UnevenTest : public IntegrationTest, public ::testing::WithParamInterface<Shared> {
 protected:
  /// Wide & deep with tables that are updated by rows, on rows that are read from files.
  Job job(const std::string& files, const std::string& name, std::vector<std::string> more = {}) const {
    const std::string text = R"(
name: "uneven" seed: 3 steps: )" +
                             std::to_string(kSteps) +
                             R"(
model { name: "wide_deep" hidden: 8 embedding_dim: 4 hash_buckets: 30 sparse_tables: true }
input {
  format: CSV )" + files + R"( global_batch_size: 17 shuffle: false
  columns { name: "x" kind: NUMERIC }
  columns { name: "c" kind: CATEGORICAL buckets: 30 }
  columns { name: "d" kind: CATEGORICAL buckets: 30 }
  columns { name: "y" kind: LABEL }
}
optimizer { kind: SGD learning_rate: 0.2 }
evaluation { disabled: true }
runtime { intra_op_threads: 1 device: CPU }
)";
    Job job{write(name + ".pbtxt", text), directory(), std::move(more)};
    return job.with(checkpoints_in(directory() / (name + "-checkpoints"), 0));
  }
  static std::string row(int i) {
    return std::to_string((i * 7) % 11 - 5) + "," + "c" + std::to_string(i % 5) + ",d" +
           std::to_string((i * 3) % 7) + "," + std::to_string((i * i) % 3 == 1 ? 1 : 0) + "\n";
  }
  /// Rows [first, first + count) of the data set.
  static std::string rows(int first, int count) {
    std::string text;
    for (int i = first; i < first + count; ++i) text += row(i);
    return text;
  }
  Job with_strategy(const Job& job) const {
    return job.with({std::string("strategy.kind=") + GetParam().strategy, "strategy.bucket_bytes=200"});
  }
  /// Runs it on the workers of the parameter, whose losses, weighted by their rows, are compared with those
  /// of one worker; and what they have learned with what that one has.
  void expect_as_alone(const Job& alone, const Path& alone_root, const Job& shared, const Path& shared_root) {
    const std::vector<float> expected = train("alone", alone);
    ASSERT_EQ(expected.size(), std::size_t{kSteps});
    EXPECT_LT(expected.back(), expected.front()) << "it learns";
    const Shared& how = GetParam();
    Cluster cluster(directory() / "shared", with_strategy(shared), {how.workers, how.servers});
    cluster.expect_success();
    const std::vector<int> share = parts(how.workers);
    std::vector<double> losses(kSteps);
    for (int w = 0; w < how.workers; ++w) {
      const std::vector<float> its = losses_of(cluster.steps_file(w));
      ASSERT_EQ(its.size(), losses.size());
      // Under ALLREDUCE every worker has the mean over all rows.
      const double weight =
          how.servers > 0 ? share[static_cast<std::size_t>(w)] / double{kUnevenRows} : 1.0 / how.workers;
      for (std::size_t i = 0; i < its.size(); ++i) losses[i] += weight * double{its[i]};
    }
    for (std::size_t i = 0; i < losses.size(); ++i)
      ASSERT_NEAR(losses[i], expected[i], kNear) << "step " << i;
    const Values one = values_of_newest(alone_root), all = values_of_newest(shared_root);
    int compared = 0;
    for (const auto& [name, values] : all) {
      if (!one.contains(name)) continue;  // rows of a server's table
      ++compared;
      EXPECT_THAT(values, ::testing::Pointwise(::testing::FloatNear(kNear), one.at(name))) << name;
    }
    EXPECT_GE(compared, 4);
  }
  Path root(const std::string& name) const { return directory() / (name + "-checkpoints"); }
};

TEST_P(UnevenTest, SeventeenRowsLoseAndLearnAsWithOneWorker) {
  write("rows.csv", rows(0, 51));
  const std::string files = "train_files: 'rows.csv'";
  expect_as_alone(job(files, "a"), root("a"), job(files, "b"), root("b"));
}

TEST_P(UnevenTest, ShardedRowsDoTheSame) {
  write("rows.csv", rows(0, kUnevenRows));
  const std::string files = "train_files: 'rows.csv'";
  expect_as_alone(job(files, "a"), root("a"), job(files + " shard: ROWS", "b"), root("b"));
}

TEST_P(UnevenTest, ShardedFilesDoTheSame) {
  std::string names;
  int first = 0;
  for (const int count : parts(GetParam().workers)) {
    const std::string name = "part-" + std::to_string(first) + ".csv";
    write(name, rows(first, count));
    names += " train_files: '" + name + "'";
    first += count;
  }
  expect_as_alone(job(names, "a"), root("a"), job(names + " shard: FILES", "b"), root("b"));
}

TEST_P(UnevenTest, AutomaticStreamsAndBatchedSiblingsAreTheSameOnAllRanks) {
  write("rows.csv", rows(0, 51));
  const std::string files = "train_files: 'rows.csv'";
  const std::vector<std::string> streams{"streams.count=3", "streams.policy=AUTO",
                                         "streams.measure_seconds=0.1",
                                         "streams.batch_siblings=ACROSS_SCOPES"};
  expect_as_alone(job(files, "a"), root("a"), job(files, "b", streams), root("b"));
}

TEST_P(UnevenTest, ARunGoesOnWithAnotherNumberOfWorkers) {
  write("rows.csv", rows(0, 51));
  const std::string files = "train_files: 'rows.csv'";
  const std::vector<float> expected = train("alone", job(files, "a"));
  const Shared& how = GetParam();
  {
    Cluster half(directory() / "half", with_strategy(job(files, "b", {"steps=15"})),
                 {how.workers, how.servers});
    half.expect_success();
  }
  const int others = how.workers == 2 ? 3 : 2;
  Cluster rest(directory() / "rest", with_strategy(job(files, "b")), {others, how.servers}, {"--resume"});
  rest.expect_success();
  const std::vector<float> first = losses_of(rest.steps_file(0), 15);
  ASSERT_EQ(first.size(), 15U);
  if (how.servers == 0) {
    for (std::size_t i = 0; i < first.size(); ++i) ASSERT_NEAR(first[i], expected[15 + i], kNear);
  }
  const Values one = values_of_newest(root("a")), all = values_of_newest(root("b"));
  for (const auto& [name, values] : all)
    if (one.contains(name)) {
      EXPECT_THAT(values, ::testing::Pointwise(::testing::FloatNear(kNear), one.at(name))) << name;
    }
}

TEST_P(UnevenTest, FewerRowsThanWorkersAreRefused) {
  write("rows.csv", rows(0, 51));
  Cluster cluster(directory() / "few",
                  with_strategy(job("train_files: 'rows.csv'", "b", {"input.global_batch_size=1"})),
                  {GetParam().workers, GetParam().servers});
  EXPECT_EQ(cluster.worker(0).exit_code(), 2);
  EXPECT_THAT(cluster.worker(0).err(),
              HasSubstr("input.global_batch_size is 1, fewer than one row for each"));
}

INSTANTIATE_TEST_SUITE_P(Shared, UnevenTest,
                         ::testing::Values(Shared{"ring2", "ALLREDUCE", 2, 0},
                                           Shared{"ring3", "ALLREDUCE", 3, 0}, Shared{"ps2", "PS", 2, 1},
                                           Shared{"ps3", "PS", 3, 2}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace braid::integration
