#include "tests/integration/drawn_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <random>
#include <utility>

namespace braid::integration {
namespace {

class Draw {
 public:
  Draw(std::uint64_t seed, int steps) : random_(seed), steps_(steps) {}

  DrawnJob job() {
    drawn_.model = one_of({"wide_deep", "mmoe", "din", "ragged", "transformer"});
    const std::string first = one_of(strategies()), second = one_of(strategies());
    if (chance(0.3)) drawn_.cut = std::uniform_int_distribution<>(1, steps_ - 1)(random_);
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
    if (chance(0.6))
      of_run("strategy.hybrid.table=match: '.*' plan: " + one_of(plans));
    else if (chance(0.5))
      of_run("strategy.hybrid.table=match: '.*' plan: ROW hot_rows: " + one_of({"1", "40", "1000"}));
  }

  std::mt19937_64 random_;
  int steps_;
  DrawnJob drawn_;
  bool cuts_batches_ = false, adds_rows_ = false, has_servers_ = false;  // whether one of its runs does
  bool row_wise_ = false, freezes_ = false;
  DrawnRun run_;          // that is being drawn
  std::string strategy_;  // its
};

}  // namespace

std::string DrawnRun::text() const {
  return fmt::format("{} workers, {} servers, {}", shape.workers, shape.servers, fmt::join(settings, " "));
}

std::string DrawnJob::text() const {
  std::string text = fmt::format("{} {}; {}", model, fmt::join(settings, " "), first.text());
  if (cut > 0) text += fmt::format("; from step {} on {}", cut, second.text());
  return text;
}

Job DrawnJob::plain(int steps) const {
  const Job job{fmt::format("{}/examples/jobs/{}_generated.pbtxt", BRAID_SOURCE_DIR, model),
                "",
                {fmt::format("steps={}", steps), "evaluation.every_steps=0", "input.generator.rows=4000",
                 "input.generator.test_rows=2000", "runtime.device=CPU", "runtime.intra_op_threads=1"}};
  return job.with(settings);
}

DrawnJob draw_job(std::uint64_t seed, int steps) { return Draw(seed, steps).job(); }

std::uint64_t number_of(const char* variable, std::uint64_t fallback) {
  const char* const text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : fallback;
}

}  // namespace braid::integration
