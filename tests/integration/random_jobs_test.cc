// Jobs drawn at random: a model, an optimizer, streams, staging, and a strategy with settings of its own.
// Each is one that the strategy takes, and trains and evaluates as the plain job in one process does, but for
// rounding; some are cut in the middle, and go on from their checkpoint as another strategy.
// BRAID_RANDOM_JOBS says how many are drawn, BRAID_RANDOM_SEED from which seed on; a failure names its seed.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>
#include <utility>

#include "tests/integration/checkpoints.h"
#include "tests/integration/run.h"

namespace braid::integration {
namespace {

constexpr double kLossTolerance = 2e-4, kQualityTolerance = 2e-3;

std::uint64_t number_of(const char* variable, std::uint64_t fallback) {
  const char* const text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : fallback;
}

constexpr int kSteps = 10;

/// How a job is run.
struct DrawnRun {
  std::vector<std::string> settings;
  Cluster::Shape shape;

  std::string text() const {
    return fmt::format("{} workers, {} servers, {}", shape.workers, shape.servers, fmt::join(settings, " "));
  }
};

struct DrawnJob {
  std::string model;
  std::vector<std::string> settings;  // of all runs
  int cut = 0;                        // where the second run goes on; 0: nowhere
  DrawnRun first, second;

  std::string text() const {
    std::string text = fmt::format("{} {}; {}", model, fmt::join(settings, " "), first.text());
    if (cut > 0) text += fmt::format("; from step {} on {}", cut, second.text());
    return text;
  }
};

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}

  DrawnJob job() {
    drawn_.model = one_of({"wide_deep", "mmoe", "din", "ragged", "transformer"});
    const std::string first = one_of(strategies()), second = one_of(strategies());
    if (chance(0.3)) drawn_.cut = std::uniform_int_distribution<>(1, kSteps - 1)(random_);
    cuts_batches_ = first == "PIPELINE" || (drawn_.cut > 0 && second == "PIPELINE");
    const auto adds_rows = [](const std::string& each) {
      return each != "LOCAL" && each != "ALLREDUCE" && each != "MIRRORED" && each != "TENSOR";
    };
    adds_rows_ = adds_rows(first) || (drawn_.cut > 0 && adds_rows(second));
    has_servers_ = first.starts_with("PS") || (drawn_.cut > 0 && second.starts_with("PS"));
    // Parts of a batch are cut by rows, which ragged columns have no equal number of values in.
    if (cuts_batches_ && drawn_.model == "ragged") drawn_.model = "din";
    model();
    optimizer();
    drawn_.first = run(first);
    drawn_.second = run(second);
    return drawn_;
  }

 private:
  bool chance(double share) { return std::uniform_real_distribution<>(0, 1)(random_) < share; }
  std::string one_of(const std::vector<std::string>& choices) {
    return choices[std::uniform_int_distribution<std::size_t>(0, choices.size() - 1)(random_)];
  }
  int one_of_numbers(const std::vector<int>& choices) {
    return choices[std::uniform_int_distribution<std::size_t>(0, choices.size() - 1)(random_)];
  }
  static std::vector<std::string> strategies() {
    return {"LOCAL", "PS", "PS_ALLREDUCE", "ALLREDUCE", "MIRRORED", "HYBRID", "PIPELINE", "TENSOR"};
  }
  void of_all(std::string setting) { drawn_.settings.push_back(std::move(setting)); }
  void of_run(std::string setting) { run_.settings.push_back(std::move(setting)); }

  void model() {
    of_all("input.global_batch_size=" + one_of({"24", "48", "96", "192"}));
    if (chance(0.2)) of_all("input.shuffle=false");
    // Servers and owners add rows up, which the largest of them is not.
    if (drawn_.model == "ragged" && adds_rows_) of_all("input.columns[7].pooling=" + one_of({"SUM", "MEAN"}));
  }

  void optimizer() {
    const std::string kind =
        one_of({"SGD 0.05", "MOMENTUM 0.01", "ADAGRAD 0.02", "ADAM 0.002", "FTRL 0.05", "RMSPROP 0.001"});
    of_all("optimizer.kind=" + kind.substr(0, kind.find(' ')));
    of_all("optimizer.learning_rate=" + kind.substr(kind.find(' ') + 1));
    if (kind.starts_with("ADAGRAD")) of_all("optimizer.initial_accumulator=0.1");
    row_wise_ = kind.starts_with("ADAGRAD") && chance(0.3);
    if (row_wise_) of_all("optimizer.row_wise=true");
    if (chance(0.2)) of_all("optimizer.group=match: '.*/bias' kind: SGD learning_rate: 0.03");
    // PS_ALLREDUCE needs a table that is trained.
    freezes_ = !has_servers_ && chance(0.1);
    if (freezes_) of_all("optimizer.group=match: '.*/table' frozen: true");
    // Servers see no step as a whole: workers clip their own gradients.
    if (!has_servers_ && chance(0.2)) of_all("optimizer.clip_norm=" + one_of({"0.1", "1"}));
    if (chance(0.15)) of_all("optimizer.l2=0.01");
    if (chance(0.15)) of_all("optimizer.weight_decay=0.01");
    if (chance(0.3)) of_all("schedule.warmup_steps=3");
    if (!cuts_batches_ && drawn_.model != "ragged" && chance(0.25))
      of_all("optimizer.accumulate_steps=" + one_of({"2", "3"}));
  }

  DrawnRun run(const std::string& strategy) {
    run_ = {};
    strategy_ = strategy;
    of_run("strategy.kind=" + strategy_);
    streams_and_staging();
    strategy_settings();
    return run_;
  }

  void streams_and_staging() {
    of_run("streams.policy=" + one_of({"NONE", "COST", "FULL", "EMBEDDING", "AUTO"}));
    of_run("streams.count=" + one_of({"1", "2", "3", "5"}));
    of_run("streams.measure_seconds=0.05");
    of_run("streams.batch_siblings=" + one_of({"OFF", "WITHIN_SCOPES", "ACROSS_SCOPES"}));
    if (chance(0.3)) of_run("runtime.fusion=true");
    if (chance(0.3)) of_run("runtime.steps_in_flight=" + one_of({"1", "3"}));
    if (chance(0.2))
      of_run("staging.enabled=false");
    else if (chance(0.4))
      of_run("staging.num_threads=" + one_of({"1", "2", "3"}));
    if (strategy_ != "PIPELINE" && strategy_ != "TENSOR" && chance(0.15))
      of_run("runtime.recompute.memory_bytes=10000000");
  }

  void strategy_settings() {
    if (strategy_ == "LOCAL") return;
    run_.shape.workers = one_of_numbers({1, 2, 2, 3, 4});
    if (strategy_ == "MIRRORED") {
      run_.shape.workers = one_of_numbers({1, 1, 2});
      of_run("strategy.mirrored.devices=" + one_of({"1", "2", "2", "3"}));
    }
    if (chance(0.3)) of_run("strategy.bucket_bytes=" + one_of({"1000", "20000"}));
    if (strategy_.starts_with("PS")) servers();
    if ((strategy_ == "ALLREDUCE" || strategy_ == "MIRRORED") && chance(0.3))
      of_run("strategy.shard=" + one_of({"OPTIMIZER", "GRADIENTS"}));
    if (strategy_ == "HYBRID") tables();
    if (strategy_ == "TENSOR") mesh();
    if (strategy_ == "PIPELINE") {
      of_run("strategy.pipeline.micro_batches=" + one_of({"1", "2", "4"}));
      of_run("strategy.pipeline.schedule=" + one_of({"GPIPE", "ONE_F_ONE_B"}));
    }
  }

  void mesh() {
    of_run("strategy.tensor.min_width=1");
    if (chance(0.3)) of_run("strategy.tensor.sequence=true");
    // Columns of varying length belong to one group.
    if (drawn_.model != "ragged" && run_.shape.workers % 2 == 0 && chance(0.4))
      of_run("strategy.mesh.data=2");
    // Ragged tables are read in bags, wide ones have one column, frozen ones stay whole.
    if (!row_wise_ && !freezes_ && drawn_.model != "ragged" && drawn_.model != "wide_deep" &&
        run_.shape.workers != 3 && chance(0.3))
      of_run("strategy.tensor.layer=match: '.*/table' split: COLUMN");
  }

  void servers() {
    run_.shape.servers = one_of_numbers({1, 1, 2, 3});
    if (chance(0.3)) of_run("strategy.ps.pull_ahead=true");
    const bool caches = chance(0.3);
    if (caches) of_run("strategy.ps.cache_rows=100000");
    if (chance(0.3)) of_run("strategy.ps.table_threads=2");
    if (chance(0.2)) of_run("strategy.ps.shared_memory=false");
    if (strategy_ == "PS" && chance(0.2)) {
      of_run("strategy.consistency=" + one_of({"SSP", caches ? "BSP" : "TIMED"}));
      of_run("strategy.staleness=0");
    }
  }

  void tables() {
    if (chance(0.4)) of_run("strategy.hybrid.ids=" + one_of({"DISTINCT", "ALL"}));
    std::vector<std::string> plans{"REPLICATE", "TABLE", "ROW"};
    // Wide tables have one column, and ragged ones 4 and 8.
    if (!row_wise_ && drawn_.model != "wide_deep" && run_.shape.workers != 3) plans.emplace_back("COLUMN");
    if (chance(0.6)) of_run("strategy.hybrid.table=match: '.*' plan: " + one_of(plans));
  }

  std::mt19937_64 random_;
  DrawnJob drawn_;
  bool cuts_batches_ = false, adds_rows_ = false, has_servers_ = false;  // whether one of its runs does
  bool row_wise_ = false, freezes_ = false;
  DrawnRun run_;          // that is being drawn
  std::string strategy_;  // its
};

class RandomJobs : public IntegrationTest {
 protected:
  Job plain(const DrawnJob& drawn) const {
    Job job{fmt::format("{}/examples/jobs/{}_generated.pbtxt", BRAID_SOURCE_DIR, drawn.model),
            "",
            {fmt::format("steps={}", kSteps), "evaluation.every_steps=0", "input.generator.rows=4000",
             "input.generator.test_rows=2000", "runtime.device=CPU", "runtime.intra_op_threads=1"}};
    return job.with(drawn.settings);
  }

  /// The losses of all steps, and the quality behind the last, of the job as it was drawn.
  std::pair<std::vector<double>, std::optional<double>> trained(const DrawnJob& drawn, const Path& root) {
    if (drawn.cut == 0) {
      Cluster cluster(root / "drawn", plain(drawn).with(drawn.first.settings), drawn.first.shape);
      cluster.expect_success();
      return {cluster.mean_losses(), result_of(cluster.worker(0)).quality};
    }
    const Job saved = plain(drawn).with(checkpoints_in(root / "checkpoints", kSteps));
    Cluster first(root / "first", saved.with(drawn.first.settings).with({fmt::format("steps={}", drawn.cut)}),
                  drawn.first.shape);
    first.expect_success();
    std::vector<double> losses = first.mean_losses();
    Cluster second(root / "second", saved.with(drawn.second.settings), drawn.second.shape, {"--resume"});
    second.expect_success();
    const std::vector<double> rest = second.mean_losses(static_cast<std::uint64_t>(drawn.cut));
    losses.insert(losses.end(), rest.begin(), rest.end());
    return {losses, result_of(second.worker(0)).quality};
  }

  void compare(const DrawnJob& drawn, const Path& root) {
    Cluster alone(root / "alone", plain(drawn).with({"streams.policy=NONE", "streams.batch_siblings=OFF"}),
                  {});
    alone.expect_success();
    const auto [losses, quality] = trained(drawn, root);
    if (HasFailure()) return;
    const std::vector<double> expected = alone.mean_losses();
    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t step = 0; step < expected.size(); ++step)
      EXPECT_NEAR(losses[step], expected[step], kLossTolerance * (1 + std::abs(expected[step]))) << step;
    ASSERT_TRUE(quality);
    EXPECT_NEAR(*quality, result_of(alone.worker(0)).quality.value(), kQualityTolerance);
  }
};

TEST_F(RandomJobs, TrainAsInOneProcess) {
  const std::uint64_t first = number_of("BRAID_RANDOM_SEED", 1), jobs = number_of("BRAID_RANDOM_JOBS", 20);
  for (std::uint64_t seed = first; seed < first + jobs; ++seed) {
    const DrawnJob drawn = Draw(seed).job();
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, drawn.text()));
    compare(drawn, directory() / std::to_string(seed));
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace braid::integration
