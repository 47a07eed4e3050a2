// MLPerf's DLRM-v2 with cut tables on a CPU: against the losses of a plain PyTorch model (dlrm_v2/make.py),
// the same under every strategy, and interrupted.
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/integration/checkpoints.h"

namespace braid::integration {
namespace {

using ::testing::HasSubstr;

const Path kFiles = Path(BRAID_SOURCE_DIR) / "tests/integration/dlrm_v2";
constexpr int kSteps = 200;

double worst_difference(const std::vector<double>& losses, const std::vector<double>& expected) {
  EXPECT_EQ(losses.size(), expected.size());
  double worst = 0;
  for (std::size_t i = 0; i < std::min(losses.size(), expected.size()); ++i)
    worst = std::max(worst, std::abs(losses[i] - expected[i]) / (1 + std::abs(expected[i])));
  return worst;
}

class DlrmV2Test : public IntegrationTest {
 protected:
  /// The shipped job as small as make.py has it.
  Job job(std::vector<std::string> set = {}) {
    const Path rows = directory() / "rows";
    if (!std::filesystem::exists(rows)) {
      const auto made =
          run("data", {"data", "mlperf-dlrm", "--rows", "512", "--seed", "3", "--out", rows.string()});
      EXPECT_EQ(made->exit_code(), 0) << made->err();
    }
    set.insert(set.begin(),
               {"model.embedding_dim=4", "model.max_rows=20", "model.bottom=8", "model.hidden=12,6",
                "model.cross_rank=3", "input.global_batch_size=32", "steps=" + std::to_string(kSteps),
                "evaluation.enabled=false", "runtime.device=CPU", "runtime.intra_op_threads=1",
                "streams.policy=NONE", "streams.count=1"});
    return {"mlperf_dlrm_v2.pbtxt", rows, std::move(set)};
  }
  std::vector<double> from_given_values(const std::string& name, const Job& job, const std::string& strategy,
                                        Cluster::Shape shape) {
    const Path values = directory() / (name + "-values");
    const auto import = run(name + "-import", {"ckpt", "import", (kFiles / "initial.npz").string(), "--out",
                                               values.string(), "--step", "0"});
    EXPECT_EQ(import->exit_code(), 0) << import->err();
    Cluster cluster(directory() / name,
                    job.with({"strategy.kind=" + strategy, "checkpoint.directory=" + values.string()}), shape,
                    {"--resume"});
    cluster.expect_success();
    return cluster.mean_losses();
  }
};

TEST_F(DlrmV2Test, LosesWhatPyTorchLoses) {
  const auto file = nlohmann::json::parse(std::ifstream(kFiles / "losses.json"));
  for (const auto& example : file["cases"]) {
    const std::string name = example["name"];
    const std::vector<double> expected = example["losses"];
    ASSERT_EQ(expected.size(), std::size_t{kSteps});
    const Job with = job(example["set"].get<std::vector<std::string>>());
    EXPECT_LT(worst_difference(from_given_values(name, with, "LOCAL", {}), expected), 1e-5) << name;
  }
}

TEST_F(DlrmV2Test, LosesTheSameUnderEveryStrategy) {
  // Descent, so that a last bit of a gradient stays one of the weights: Adagrad begins with signs.
  const Job small = job({"steps=60", "optimizer.kind=SGD", "optimizer.learning_rate=0.1"});
  const auto losses = [&](const std::string& name, const std::string& strategy, Cluster::Shape shape,
                          std::vector<std::string> set) {
    set.push_back("strategy.kind=" + strategy);
    Cluster cluster(directory() / name, small.with(set), shape);
    cluster.expect_success();
    return cluster.mean_losses();
  };
  const std::vector<double> alone = losses("local", "LOCAL", {}, {});
  for (const auto& [name, strategy, shape, set] :
       {std::tuple{"ps", "PS", Cluster::Shape{2, 2}, std::vector<std::string>{}},
        {"allreduce", "ALLREDUCE", {2, 0}, {}},
        {"lists", "HYBRID", {2, 0}, {"strategy.hybrid.table=match: '.*' plan: ROW"}},
        {"sums",
         "HYBRID",
         {2, 0},
         {"strategy.hybrid.ids=ALL", "strategy.hybrid.table=match: '.*' plan: TABLE"}}})
    EXPECT_LT(worst_difference(losses(name, strategy, shape, set), alone), 1e-5) << name;
}

TEST_F(DlrmV2Test, StreamsKeepItsBits) {
  const Job small = job({"steps=20"});
  const std::vector<float> alone = train("one-stream", small);
  for (const char* policy : {"USER", "COST"})
    EXPECT_EQ(train(policy, small.with({std::string("streams.policy=") + policy, "streams.count=4"})), alone)
        << policy;
}

TEST_F(DlrmV2Test, RowWiseAdagradIsRefusedWhereRowsTravel) {
  for (const char* strategy : {"PS", "HYBRID"}) {
    const auto process = run(
        "refused", job({"optimizer.row_wise=true", std::string("strategy.kind=") + strategy}).arguments());
    EXPECT_EQ(process->exit_code(), 2);
    EXPECT_THAT(process->err(), HasSubstr("optimizer.row_wise is not available with strategy"));
  }
}

}  // namespace
}  // namespace braid::integration
