#include "worker/run/mllog.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "engine/exec/runtime.h"
#include "proto/job.pb.h"
#include "worker/job/job.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {
namespace {

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

/// As short as reads back to the same float: 1e-8 of a job is 1e-08 here, not 9.99999993922529e-09.
std::string number(float value) { return fmt::format("{}", value); }
std::string number(double value) { return fmt::format("{}", value); }
template <class Integer>
std::string whole(Integer value) {
  return fmt::format("{}", value);
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string platform_of(Runtime& runtime, int world) {
  const Accelerator* device = runtime.device();
  return fmt::format("{} x {}", world, device ? device->description() : "CPU");
}

std::string product_precision(const proto::Job& job, bool on_device) {
  const DType half = precision_of(job).half;
  if (half == DType::BFloat16) return "bfloat16";
  if (half == DType::Float16) return "fp16";
  return on_device && uses_tf32(job) ? "tf32" : "fp32";
}

}  // namespace

std::string mllog_benchmark(const std::string& model) { return model == "dlrm_v2" ? "dlrm_dcnv2" : model; }

MlLog::MlLog(const RunContext& run) : run_(run), file_(nullptr, std::fclose) {
  const proto::Metrics& metrics = run.job.metrics();
  if (metrics.mllog().empty() || !run.peers.leader()) return;
  if (run.resumes()) read_beginning();
  file_.reset(std::fopen(metrics.mllog().c_str(), continued_ ? "a" : "w"));
  if (!file_)
    throw InvalidArgument("metrics.mllog: cannot write '" + metrics.mllog() + "': " + std::strerror(errno));
  if (continued_) return;
  point("submission_benchmark", quoted(mllog_benchmark(run.job.model().name())));
  point("submission_org", quoted(metrics.mllog_submitter().empty() ? "none" : metrics.mllog_submitter()));
  point("submission_division", quoted(metrics.mllog_closed() ? "closed" : "open"));
  point("submission_platform", quoted(platform_of(run.runtime, run.peers.world)));
  point("cache_clear", "false");  // of the host's files; nobody here does that
  write("INTERVAL_START", "init_start", "null");
}

void MlLog::read_beginning() {
  std::ifstream file(run_.job.metrics().mllog());
  for (std::string line; std::getline(file, line);) {
    const auto has = [&](const char* key) {
      return line.find(fmt::format("\"key\": \"{}\"", key)) != std::string::npos;
    };
    continued_ = continued_ || has("run_start");
    told_rows_ = told_rows_ || has("eval_samples");
    stopped_ = stopped_ || has("run_stop");
  }
}

void MlLog::begin(std::uint64_t first, std::uint64_t total, std::int64_t train_rows) {
  total_ = total;
  train_rows_ = train_rows;
  if (!continued_) {
    hyper_parameters(total, train_rows);
    write("INTERVAL_END", "init_stop", "null");
    write("INTERVAL_START", "run_start", "null");
  }
  if (!stopped_ && first < total) open_block(first);
}

void MlLog::hyper_parameters(std::uint64_t total, std::int64_t train_rows) {
  const proto::Optimizer& optimizer = run_.job.optimizer();
  const proto::Schedule& schedule = run_.job.schedule();
  point("seed", whole(run_.job.seed()));
  point("global_batch_size", whole(run_.job.input().global_batch_size()));
  point("gradient_accumulation_steps", whole(std::max<std::uint32_t>(1, optimizer.accumulate_steps())));
  point("train_samples", whole(train_rows));
  point("opt_name", quoted(lower(proto::Optimizer::Kind_Name(optimizer.kind()))));
  point("opt_base_learning_rate", number(optimizer.learning_rate()));
  point("opt_weight_decay", number(optimizer.weight_decay()));
  if (optimizer.kind() == proto::Optimizer::ADAGRAD) {
    point("opt_adagrad_learning_rate_decay", "0");
    point("opt_adagrad_initial_accumulator_value", number(optimizer.initial_accumulator()));
    point("opt_adagrad_epsilon", number(optimizer.epsilon()));
  }
  const bool decays = schedule.kind() != proto::Schedule::CONSTANT;
  const std::uint64_t warmup = schedule.warmup_steps();
  point("opt_learning_rate_warmup_steps", whole(warmup));
  point("opt_learning_rate_decay_start_step", whole(decays ? warmup : 0));
  point("opt_learning_rate_decay_steps", whole(decays && total > warmup ? total - warmup : 0));
  point("lowest_numerical_precision_in_linear",
        quoted(product_precision(run_.job, run_.runtime.device() != nullptr)));
}

double MlLog::epoch(std::uint64_t step) const {
  if (train_rows_ <= 0) return 0;
  const double rows = static_cast<double>(step) * static_cast<double>(run_.job.input().global_batch_size());
  return rows / static_cast<double>(train_rows_);
}

void MlLog::open_block(std::uint64_t step) {
  const std::uint64_t every =
      run_.job.evaluation().enabled() ? run_.job.evaluation().every_steps() : std::uint64_t{0};
  const std::uint64_t end = every > 0 ? std::min(total_, (step / every + 1) * every) : total_;
  block_ = step;
  write("INTERVAL_START", "block_start", "null",
        fmt::format(R"("first_epoch_num": {}, "epoch_count": {})", epoch(step), epoch(end) - epoch(step)));
}

void MlLog::close_block() {
  if (!block_) return;
  write("INTERVAL_END", "block_stop", "null", fmt::format(R"("first_epoch_num": {})", epoch(*block_)));
  block_.reset();
}

void MlLog::evaluating(std::uint64_t step) {
  if (stopped_ || evaluating_ == step || evaluated_ == step) return;
  close_block();
  evaluating_ = step;
  write("INTERVAL_START", "eval_start", "null", fmt::format(R"("epoch_num": {})", epoch(step)));
}

void MlLog::evaluated(std::uint64_t step, const Metric& metric, const MetricValues& measured) {
  if (stopped_ || evaluating_ != step) return;
  evaluating_.reset();
  evaluated_ = step;
  const double value = measured.value(metric.name());
  if (!told_rows_) point("eval_samples", whole(measured.rows));
  told_rows_ = true;
  const std::string at = fmt::format(R"("epoch_num": {}, "samples_count": {})", epoch(step),
                                     static_cast<std::int64_t>(step) * run_.job.input().global_batch_size());
  point("eval_accuracy", std::isfinite(value) ? number(value) : "null", at);
  write("INTERVAL_END", "eval_stop", "null", at);
  const proto::Evaluation& evaluation = run_.job.evaluation();
  const bool higher = higher_is_better(metric.kind).value_or(true);
  if (evaluation.has_target() && (higher ? value >= evaluation.target() : value <= evaluation.target())) {
    stop(step, "success");
  } else if (step < total_) {
    open_block(step);
  }
}

void MlLog::end(std::uint64_t step, bool interrupted) {
  close_block();
  if (!interrupted) stop(step, "aborted");
}

void MlLog::stop(std::uint64_t step, std::string_view status) {
  if (stopped_) return;
  stopped_ = true;
  write("INTERVAL_END", "run_stop", "null",
        fmt::format(R"("status": "{}", "epoch_num": {})", status, epoch(step)));
}

void MlLog::write(std::string_view type, std::string_view key, const std::string& value,
                  const std::string& metadata) {
  if (!file_) return;
  const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  const std::string line = fmt::format(
      ":::MLLOG {{\"namespace\": \"\", \"time_ms\": {}, \"event_type\": \"{}\", \"key\": \"{}\", "
      "\"value\": {}, \"metadata\": {{{}}}}}\n",
      now.count(), type, key, value, metadata);
  if (std::fputs(line.c_str(), file_.get()) >= 0 && std::fflush(file_.get()) == 0) return;
  log_warning("metrics.mllog: cannot write '{}': {}; it ends before {}", run_.job.metrics().mllog(),
              std::strerror(errno), key);
  file_.reset();
}

}  // namespace braid::worker
