// MLPerf's HSTU with cut tables on a CPU: against the losses of a plain PyTorch model (hstu/make.py), under
// every strategy, interrupted, and what it refuses.
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/files.h"
#include "base/formats/npy.h"
#include "base/formats/zip.h"
#include "base/init.h"
#include "base/random_formulas.h"
#include "tests/integration/checkpoints.h"
#include "tests/integration/losses.h"

namespace braid::integration {
namespace {

using ::testing::HasSubstr;

class HstuTest : public IntegrationTest {
 protected:
  HstuTest()
      : recorded_(nlohmann::json::parse(
            std::ifstream(Path(BRAID_SOURCE_DIR) / "tests/integration/hstu/losses.json"))) {}

  Path rows() {
    const Path path = directory() / "rows";
    if (std::filesystem::exists(path)) return path;
    auto arguments = recorded_["data"].get<std::vector<std::string>>();
    arguments.insert(arguments.end(), {"--out", path.string()});
    const auto made = run("data", arguments);
    EXPECT_EQ(made->exit_code(), 0) << made->err();
    EXPECT_THAT(made->out(), HasSubstr(": " + std::to_string(recorded_["rows"].get<int>()) + " samples"));
    return path;
  }
  /// The shipped job's text with `from` replaced.
  static std::string with_text(const std::string& from, const std::string& to) {
    std::string text = read_file(Path(BRAID_SOURCE_DIR) / "examples/jobs/mlperf_hstu.pbtxt");
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  }
  /// A job of such a text, as small as make.py has it.
  Job job_of(const std::string& text, std::vector<std::string> set = {}) {
    set.insert(set.begin(), {"model.embedding_dim=8", "model.max_rows=40", "model.hidden=6", "model.layers=2",
                             "model.heads=2", "model.dropout=0", "input.global_batch_size=16", "steps=60",
                             "epochs=0", "schedule.warmup_steps=0", "optimizer.clip_norm=0",
                             "evaluation.enabled=false", "runtime.device=CPU", "runtime.intra_op_threads=1",
                             "streams.policy=NONE", "streams.count=1"});
    return {write("job" + std::to_string(jobs_++) + ".pbtxt", text), rows(), std::move(set)};
  }
  Job job(std::vector<std::string> set = {}) { return job_of(with_text("", ""), std::move(set)); }
  /// As a case of losses.json has it.
  Job recorded_job(const nlohmann::json& example) {
    const std::string own =
        "match: \".*/table\" kind: ADAGRAD learning_rate: 1e-6 epsilon: 1e-8 initial_accumulator: 0 "
        "row_wise: "
        "true";
    return job_of(with_text(own, example["group"]), example["set"].get<std::vector<std::string>>());
  }
  /// The values that make.py begins with.
  Path initial() {
    const Path file = directory() / "initial.npz";
    ZipWriter zip(file);
    for (const auto& variable : recorded_["variables"]) {
      const std::string name = variable[0];
      const auto shape = variable[1].get<std::vector<std::int64_t>>();
      const double bound = variable[2], middle = variable[3];
      std::vector<float> values(static_cast<std::size_t>(
          std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>())));
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::uint64_t bits = random::mix(stable_hash(name) + i * 0x9E3779B97F4A7C15ULL);
        values[i] = static_cast<float>(middle + bound * (static_cast<double>(bits >> 40) * 0x1p-23 - 1));
      }
      const std::string header = npy_header(DType::Float32, shape);
      const std::span<const std::byte> parts[] = {std::as_bytes(std::span(header)),
                                                  std::as_bytes(std::span(values))};
      zip.add(name + ".npy", parts);
    }
    zip.finish();
    return file;
  }
  std::vector<double> losses(const std::string& name, const Job& job, const std::string& strategy,
                             Cluster::Shape shape, std::vector<std::string> arguments = {}) {
    Cluster cluster(directory() / name, job.with({"strategy.kind=" + strategy}), shape, arguments);
    cluster.expect_success();
    return cluster.mean_losses();
  }
  std::string refusal(const Job& job) {
    const auto process = run("refused", job.arguments());
    EXPECT_EQ(process->exit_code(), 2) << process->err();
    return process->err();
  }
  const nlohmann::json recorded_;
  int jobs_ = 0;
};

TEST_F(HstuTest, LosesWhatPyTorchLoses) {
  const Path values = directory() / "values";
  const auto import =
      run("import", {"ckpt", "import", initial().string(), "--out", values.string(), "--step", "0"});
  ASSERT_EQ(import->exit_code(), 0) << import->err();
  for (const auto& example : recorded_["cases"]) {
    const std::string name = example["name"];
    const Path copy = directory() / (name + "-values");
    std::filesystem::copy(values, copy, std::filesystem::copy_options::recursive);
    const Job with = recorded_job(example).with({"checkpoint.directory=" + copy.string()});
    EXPECT_LT(worst_difference(losses(name, with, "LOCAL", {}, {"--resume"}),
                               example["losses"].get<std::vector<double>>()),
              1e-5)
        << name;
  }
}

TEST_F(HstuTest, LosesTheSameUnderEveryStrategy) {
  // Attention divides by the longest sequence of all workers' rows.
  const Job small = recorded_job(recorded_["cases"][0]).with({"steps=30"});
  const std::vector<double> alone = losses("local", small, "LOCAL", {});
  EXPECT_LT(worst_difference(losses("ps", small, "PS", {1, 2}), alone), 1e-5);
  const std::vector<double> two = losses("allreduce", small, "ALLREDUCE", {2, 0});
  EXPECT_LT(worst_difference(two, alone), 1e-5);
  EXPECT_LT(worst_difference(losses("three", small, "ALLREDUCE", {3, 0}), alone), 1e-5);
  EXPECT_LT(worst_difference(losses("in_order", small.with({"input.equal_work=false"}), "ALLREDUCE", {2, 0}),
                             alone),
            1e-5);
  EXPECT_LT(worst_difference(losses("servers", small, "PS", {2, 1}), two), 1e-5);
  const std::vector<std::string> by_rows{"strategy.hybrid.table=match: '.*' plan: ROW"}, own{};
  for (const auto& [name, set] : {std::pair{"own_plan", own}, {"rows", by_rows}})
    EXPECT_LT(worst_difference(losses(name, small.with(set), "HYBRID", {2, 0}), two), 1e-6) << name;
}

TEST_F(HstuTest, StreamsThreadsAndAnInterruptionKeepItsBits) {
  const Job small = job({"steps=20", "model.dropout=0.2"});
  const std::vector<float> whole = train("whole", small);
  EXPECT_EQ(
      train("streams", small.with({"streams.policy=COST", "streams.count=4", "runtime.intra_op_threads=3"})),
      whole);
  const Job saved = small.with(checkpoints_in(directory() / "checkpoints", 10));
  train("first", saved.with({"steps=10"}));
  Cluster second(directory() / "second", saved, {}, {"--resume"});
  second.expect_success();
  EXPECT_EQ(losses_of(second.steps_file(0), 10), std::vector<float>(whole.begin() + 10, whole.end()));
}

TEST_F(HstuTest, RefusesWhatDoesNotGoTogether) {
  EXPECT_THAT(refusal(job({"model.heads=3"})), HasSubstr("embedding_dim must be a multiple of 3 heads"));
  EXPECT_THAT(refusal(job({"model.hidden=6,7"})), HasSubstr("hidden is one width"));
  EXPECT_THAT(
      refusal(job_of(
          with_text("table: \"items\" output: \"candidate\"", "table: \"others\" output: \"candidate\""))),
      HasSubstr("columns 'history_item' and 'item' look up the same items: give both the same `table`"));
  EXPECT_THAT(refusal(job_of(with_text("ragged: true table: \"albums\"", "length: 20 table: \"albums\""))),
              HasSubstr("column 'history_album' of the history must be ragged"));
  EXPECT_THAT(refusal(job_of(with_text("vocabulary: \"7\"", ""))), HasSubstr("must have 2, 4, ... 256 ids"));
}

TEST_F(HstuTest, SmallOneLearnsOnMadeRows) {
  const Job small{"hstu_generated.pbtxt", "", {"runtime.intra_op_threads=1", "runtime.device=CPU"}};
  const auto process = run("learns", small.arguments());
  ASSERT_EQ(process->exit_code(), 0) << process->err();
  EXPECT_GT(*result_of(*process).quality, 0.7);
}

}  // namespace
}  // namespace braid::integration
