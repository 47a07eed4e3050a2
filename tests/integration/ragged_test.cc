// Whole jobs on lists of any length, shared tables, crosses and buckets: they learn, are interrupted,
// predict, and are refused where they are not there yet.
#include <gmock/gmock.h>

#include <fstream>
#include <numeric>

#include "base/files.h"
#include "tests/integration/checkpoints.h"

namespace braid::integration {
namespace {

using ::testing::HasSubstr;

class RaggedJobTest : public IntegrationTest {
 protected:
  static Job job(std::vector<std::string> set = {}) {
    set.insert(set.begin(), {"runtime.intra_op_threads=1", "runtime.device=CPU", "evaluation.enabled=false",
                             "epochs=0", "steps=40", "input.generator.rows=4000"});
    return {"ragged_generated.pbtxt", "", std::move(set)};
  }
};

TEST_F(RaggedJobTest, Learns) {
  const auto process =
      run("learns", job({"evaluation.enabled=true", "steps=600", "input.generator.rows=40000"}).arguments());
  ASSERT_EQ(process->exit_code(), 0) << process->err();
  EXPECT_GT(*result_of(*process).quality, 0.7);
}

TEST_F(RaggedJobTest, StreamsThreadsAndAnInterruptionKeepItsBits) {
  const std::vector<float> whole = train("whole", job());
  EXPECT_EQ(train("streams", job({"streams.policy=COST", "streams.count=4", "staging.num_threads=3"})),
            whole);
  const Job saved = job(checkpoints_in(directory() / "checkpoints", 10));
  train("first", saved.with({"steps=20"}));
  Cluster second(directory() / "second", saved, {}, {"--resume"});
  second.expect_success();
  EXPECT_EQ(losses_of(second.steps_file(0), 20), std::vector<float>(whole.begin() + 20, whole.end()));
}

TEST_F(RaggedJobTest, LosesTheSameUnderEveryStrategy) {
  // Descent, so that a last bit of a gradient stays one of the weights; no MAX, which rows that travel lack.
  std::string text = read_file(Path(BRAID_SOURCE_DIR) / "examples/jobs/ragged_generated.pbtxt");
  text.replace(text.find("MAX"), 3, "SQRTN");
  const Job descent = job({"optimizer.kind=SGD", "optimizer.learning_rate=0.1"});
  const auto with = [&](Job its, const std::string& strategy) {
    its.file = write("job.pbtxt", text);
    return its.with({"strategy.kind=" + strategy});
  };
  const std::vector<float> alone = train("alone", with(descent, "LOCAL"));
  const std::vector<std::string> rows{"strategy.hybrid.table=match: '.*' plan: ROW"},
      whole{"strategy.hybrid.ids=ALL", "strategy.hybrid.table=match: '.*' plan: TABLE"}, own{};
  for (const auto& [name, strategy, shape, set] :
       {std::tuple{"allreduce", "ALLREDUCE", Cluster::Shape{2, 0}, own},
        {"uneven", "ALLREDUCE", {3, 0}, own},
        {"server", "PS", {1, 1}, own},
        {"servers", "PS", {2, 2}, own},
        {"own_plan", "HYBRID", {2, 0}, own},
        {"lists", "HYBRID", {3, 0}, rows},
        {"all_ids", "HYBRID", {2, 0}, whole}}) {
    Cluster cluster(directory() / name, with(descent, strategy).with(set), shape);
    cluster.expect_success();
    const std::vector<double> together = cluster.mean_losses();
    ASSERT_EQ(together.size(), alone.size());
    for (std::size_t i = 0; i < alone.size(); ++i)
      EXPECT_NEAR(together[i], alone[i], 1e-5) << name << ", step " << i;
  }
}

TEST_F(RaggedJobTest, RowsThatAreDealtByWorkGoOnToTheSameBits) {
  const Job both = job({"strategy.kind=ALLREDUCE"});
  const auto losses = [&](const std::string& name, const Job& its, const std::vector<std::string>& more,
                          std::uint64_t first) {
    Cluster cluster(directory() / name, its, {2, 0}, more);
    cluster.expect_success();
    return std::pair{losses_of(cluster.steps_file(0), first), losses_of(cluster.steps_file(1), first)};
  };
  const auto whole = losses("whole", both, {}, 0);
  const auto in_order = losses("in_order", both.with({"input.equal_work=false"}), {}, 0);
  EXPECT_NE(whole.first, in_order.first) << "a worker has other rows";
  for (std::size_t i = 0; i < 5; ++i)  // of the same global batches
    EXPECT_NEAR(whole.first[i] + whole.second[i], in_order.first[i] + in_order.second[i], 1e-4) << i;
  const Job saved = both.with(checkpoints_in(directory() / "checkpoints", 10));
  losses("first", saved.with({"steps=20"}), {}, 0);
  const auto rest = losses("second", saved, {"--resume"}, 20);
  EXPECT_EQ(rest.first, std::vector<float>(whole.first.begin() + 20, whole.first.end()));
  EXPECT_EQ(rest.second, std::vector<float>(whole.second.begin() + 20, whole.second.end()));
}

/// A batch whose lists are all empty names no row, also where it is filled up: Adam would move one.
TEST_F(RaggedJobTest, BatchesOfEmptyListsMoveNoRow) {
  std::string rows;
  for (int r = 0; r < 96; ++r) {
    const bool is_empty = r / 12 % 2 == 1;
    for (int i = 0; !is_empty && i < 1 + r % 4; ++i)
      rows += (i == 0 ? "" : "|") + std::to_string((r + i) % 5);
    rows += "," + std::to_string(r % 3) + "," + std::to_string(r % 5 < 2) + "\n";
  }
  write("rows.csv", rows);
  const std::string text =
      R"(name: "empty" steps: 40 model { name: "dcn_v2" embedding_dim: 4 hidden: 8 sparse_tables: true }
    optimizer { kind: ADAM learning_rate: 0.02 epsilon: 0.001 } runtime { device: CPU intra_op_threads: 1 }
    input { format: CSV train_files: "rows.csv" test_files: "rows.csv" global_batch_size: 12 shuffle: false
      columns { name: "tags" kind: CATEGORICAL buckets: 7 ragged: true } columns { name: "x" kind: NUMERIC }
      columns { name: "y" kind: LABEL } }
    evaluation { enabled: false } )";
  const Job small{write("empty.pbtxt", text), directory(), {}};
  const std::vector<float> alone = train("alone", small.with({"strategy.kind=LOCAL"}));
  for (const auto& [name, shape, set] :
       {std::tuple{"server", Cluster::Shape{1, 1}, std::vector<std::string>{"strategy.kind=PS"}},
        {"servers", {2, 2}, {"strategy.kind=PS"}},
        {"cached", {2, 2}, {"strategy.kind=PS", "strategy.ps.cache_rows=1000"}},
        {"homes", {2, 2}, {"strategy.kind=PS_ALLREDUCE", "strategy.ps.cache_rows=4"}},
        {"three_homes", {3, 1}, {"strategy.kind=PS_ALLREDUCE", "strategy.ps.cache_rows=1000"}},
        {"copies", {2, 0}, {"strategy.kind=HYBRID"}},
        {"lists", {3, 0}, {"strategy.kind=HYBRID", "strategy.hybrid.table=match: '.*' plan: ROW"}},
        {"all_ids",
         {2, 0},
         {"strategy.kind=HYBRID", "strategy.hybrid.ids=ALL",
          "strategy.hybrid.table=match: '.*' plan: TABLE"}}}) {
    Cluster cluster(directory() / name, small.with(set), shape);
    cluster.expect_success();
    const std::vector<double> together = cluster.mean_losses();
    ASSERT_EQ(together.size(), alone.size());
    for (std::size_t i = 0; i < alone.size(); ++i)
      EXPECT_NEAR(together[i], alone[i], 1e-5) << name << ", step " << i;
  }
}

TEST_F(RaggedJobTest, MaxIsRefusedWhereRowsTravel) {
  for (const auto& [strategy, shape] : {std::pair{"PS", Cluster::Shape{2, 1}}, {"HYBRID", {2, 0}}}) {
    Cluster cluster(directory() / strategy, job({std::string("strategy.kind=") + strategy}), shape);
    EXPECT_NE(cluster.exit_codes()[0], 0) << strategy;
    EXPECT_THAT(cluster.worker(0).err(),
                HasSubstr(std::string("strategy ") + strategy + " has no pooling MAX"));
  }
}

/// A job of files: what predictions and evaluations read.
TEST_F(RaggedJobTest, PredictsRowsOfFiles) {
  std::string rows;
  for (int r = 0; r < 300; ++r) {
    for (int i = 0; i < (r == 17 ? 3000 : r % 4); ++i)
      rows += (i == 0 ? "" : "|") + std::to_string((r + i) % 7);
    rows += ",2026-03-0" + std::to_string(1 + r % 7) + " 1" + std::to_string(r % 10) + ":00," +
            std::to_string(r % 2) + "\n";
  }
  write("rows.csv", rows);
  const std::string text = R"(name: "files" steps: 20 model { name: "deepfm" embedding_dim: 4 }
    optimizer { kind: ADAGRAD learning_rate: 0.05 } runtime { device: CPU intra_op_threads: 1 }
    input { format: CSV train_files: "rows.csv" test_files: "rows.csv" global_batch_size: 32
      columns { name: "tags" kind: CATEGORICAL buckets: 20 ragged: true }
      columns { name: "hour" field: "time" kind: CATEGORICAL time_part: HOUR }
      columns { name: "second" field: "time" kind: NUMERIC time_part: SECONDS shift: 1772366400 scale: 86400 }
      columns { name: "y" kind: LABEL } }
    checkpoint { directory: ")" +
                           path("checkpoints") + "\" }\n";
  const std::string file = write("job.pbtxt", text);
  const auto trained = run("train", {"train", "--job", file, "--data-dir", directory().string()});
  ASSERT_EQ(trained->exit_code(), 0) << trained->err();
  EXPECT_GT(*result_of(*trained).quality, 0.4);
  const auto predict =
      run("predict", {"predict", "--job", file, "--data-dir", directory().string(), "--checkpoint",
                      path("checkpoints"), "--in", path("rows.csv"), "--out", path("out.csv")});
  ASSERT_EQ(predict->exit_code(), 0) << predict->err();
  std::ifstream out(path("out.csv"));
  std::string line;
  int lines = 0;
  while (std::getline(out, line)) ++lines;
  EXPECT_EQ(lines, 301);
}

}  // namespace
}  // namespace braid::integration
