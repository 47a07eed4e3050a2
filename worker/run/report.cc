#include "worker/run/report.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "engine/exec/trace.h"
#include "proto/job.pb.h"
#include "worker/job/schedule.h"
#include "worker/metrics/metrics_json.h"
#include "worker/run/finite_loss.h"
#include "worker/run/hooks.h"
#include "worker/run/replicas.h"
#include "worker/run/run_directory.h"
#include "worker/step/loss_scale.h"
#include "worker/strategies/kept_rows.h"
#include "worker/strategies/strategy.h"
#include "worker/watch/activity.h"
#include "worker/watch/monitor.h"

namespace braid::worker {
namespace {

/// Of a run directory the leader's alone, unless each role has one.
std::string steps_file_of(const RunContext& run) {
  const std::string& file = run.job.metrics().steps_file();
  const bool is_leaders = !run.job.run_directory().empty() && file.find("%r") == std::string::npos;
  if (!run.options.speaks()) return "";
  return is_leaders && !run.peers.leader() ? "" : with_role(file, run.options.role);
}

/// Of a step, of this process.
std::int64_t process_rows(const RunContext& run, const BatchShare& share) {
  if (!run.options.replicas || !run.options.speaks()) return share.rows();
  std::int64_t rows = 0;
  for (int replica = 0; replica < run.options.replicas->size(); ++replica)
    rows += share.rows_of(share.rank + replica);
  return rows;
}

/// "input: read 3.2 GiB of files past the page cache, at 1.52 GB/s"; nothing where nothing is known.
std::string reads_text(const FileReadTotals& reads) {
  if (reads.bytes == 0 || reads.seconds <= 0) return {};
  const auto bytes = static_cast<double>(reads.bytes);
  return fmt::format("input: read {} of files {} the page cache, at {:.2f} GB/s while reads were under way",
                     bytes_text(bytes), reads.direct_bytes == reads.bytes ? "past" : "through",
                     bytes / reads.seconds / 1e9);
}

/// In a row; the scale is at its least after 24.
constexpr int kMostSkipped = 200;

}  // namespace

RunReport::RunReport(const RunContext& run)
    : run_(run),
      step_log_(steps_file_of(run), run.resumes() && !run.job.run_directory().empty()),
      events_(run),
      mllog_(run) {
  if (keeps_trace() && !run.job.run_directory().empty())
    make_directories(std::filesystem::path(trace_file()).parent_path());
  if (keeps_trace() && !std::ofstream(trace_file(), std::ios::app))
    throw InvalidArgument("metrics.trace_file: cannot write '" + trace_file() + "': " + std::strerror(errno));
  if (loss_scale_of(run.job))
    skipped_steps_ = &run.monitor.registry().counter("braid_skipped_steps_total",
                                                     "Steps that updated nothing, as gradients overflowed.");
}

RunReport::~RunReport() { unwatch(); }

void RunReport::unwatch() {
  run_.monitor.watch_host({});
  run_.monitor.watch_run({});
  if (run_.options.replicas) run_.options.replicas->freeze(run_.options.replica);
  steps_ = nullptr;
}

void RunReport::go_on(const BatchShare& share) {
  share_ = share;
  resume();
}

void RunReport::watch(const TrainingSteps& steps, std::shared_ptr<const BlockSource> rows) {
  steps_ = &steps;
  if (run_.options.replicas)
    run_.options.replicas->watch(run_.options.replica, [this] { return own_activity(); });
  rows_ = std::move(rows);
  run_.monitor.watch_host([this] { return activity(); });
  run_.monitor.watch_run([this](watch::Status& status) { tell_stages(status); });
}

void RunReport::begin(std::uint64_t first, std::uint64_t job_step, std::uint64_t total,
                      const BatchShare& share, std::int64_t train_rows) {
  share_ = share;
  const ProgressMode mode = run_.peers.leader() ? progress_mode() : ProgressMode::Off;
  progress_.emplace(mode, job_step, total, run_.job.metrics().progress_seconds());
  total_ = total;
  const Stage* stage = steps_ ? steps_->stage() : nullptr;
  run_.monitor.begin_run(total, process_rows(run_, share_), share_.global_rows,
                         stage ? stage->stats().num_threads : 0,
                         run_.job.strategy().consistency() == proto::Strategy::BSP);
  if (keeps_trace() && !traces_all_steps(run_.job)) {
    traced_until_ = first + kTracedSteps;
    run_.runtime.trace()->set_recording(true);
  }
  step_log_.begin(first);
  mllog_.begin(first, total, train_rows);
  resume();
}

void RunReport::count_dropped(std::int64_t choices) {
  if (!dropped_tokens_)
    dropped_tokens_ = &run_.monitor.registry().counter(
        "braid_dropped_tokens_total", "Choices of experts that were dropped, as the experts were full.");
  dropped_tokens_->add(static_cast<double>(choices));
}

void RunReport::record(const StepOutcome& outcome) {
  loss_ = outcome.loss;
  const double rate = learning_rate(run_.job, run_.options.hooks, outcome.job_step, total_);
  const std::int64_t rows = process_rows(run_, share_);
  run_.monitor.record_step(outcome.step, loss_, rows, outcome.seconds, rate);
  const double seconds = step_seconds();
  ++recorded_;
  if (outcome.step + 1 == traced_until_) run_.runtime.trace()->set_recording(false);
  events_.step(outcome.step, loss_, rate,
               seconds > 0 ? static_cast<double>(recorded_ * share_.global_rows) / seconds : 0);
  step_log_.write(outcome.step, loss_, rows, outcome.seconds, outcome.skipped, outcome.dropped);
  if (outcome.dropped) count_dropped(*outcome.dropped);
  skipped_in_a_row_ = outcome.skipped ? skipped_in_a_row_ + 1 : 0;
  if (outcome.skipped && skipped_steps_) skipped_steps_->add();
  if (skipped_in_a_row_ == kMostSkipped)
    throw Diverged(
        fmt::format("the gradients of {} steps in a row, up to step {}, overflowed, with any scale of the "
                    "loss: the model or its input has numbers that float16 does not; runtime.precision BF16 "
                    "has the range of float32, and "
                    "--check-numerics names the node that makes the first such number",
                    kMostSkipped, outcome.step));
  if (!outcome.skipped) require_finite_loss(run_.job, outcome.step, loss_, rate);
  progress_->update(outcome.job_step, loss_, share_.global_rows, step_seconds());
}

void RunReport::evaluated(std::uint64_t step, const Metric& metric, const MetricValues& measured) {
  mllog_.evaluated(step, metric, measured);
  progress_->set_metric(metric.name(), measured.value(metric.name()));
  events_.evaluated(step, measured, run_.runtime.variables());
  if (!run_.job.run_directory().empty()) step_log_.write_evaluation(step, metrics_json(measured));
}

double RunReport::step_seconds() const {
  return seconds_ + std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

void RunReport::resume() {
  add(elsewhere_, difference(activity(), paused_at_));
  begin_ = std::chrono::steady_clock::now();
  if (paused_since_) run_.monitor.add_pause(std::chrono::duration<double>(begin_ - *paused_since_).count());
  paused_since_.reset();
  run_.monitor.set_state("training");
}

void RunReport::pause() {
  if (paused_since_) return;
  paused_since_ = std::chrono::steady_clock::now();
  step_log_.flush();  // a checkpoint may follow: who resumes from it has the lines of all steps before
  seconds_ = step_seconds();
  paused_at_ = activity();
}

void RunReport::finish() {
  pause();
  activity_ = difference(paused_at_, elsewhere_);
  progress_->finish();
  if (const auto padding = steps_ ? steps_->padding() : std::nullopt; padding && run_.peers.leader())
    log_info("ragged columns: {:.1f} % of the room that steps have for their values was padding",
             100 * *padding);
  events_.finish();
  run_.monitor.set_state("ending");
}

void RunReport::tell_stages(watch::Status& status) const {
  if (skipped_steps_) status.skipped_steps = skipped_steps();
  if (rows_) {
    const FileReadTotals reads = rows_->reads();
    if (reads.bytes > 0) status.input_reads = {reads.bytes, reads.direct_bytes, reads.seconds};
  }
  if (!steps_ || !steps_->stage()) return;
  const StageStats stats = steps_->stage()->stats();
  watch::StageState& stage = status.stages.emplace_back();
  stage.name = steps_->stage()->options().name;
  stage.ready = stats.ready;
  stage.capacity = stats.capacity;
  stage.threads = stats.num_threads;
  stage.occupancy = stats.capacity > 0 ? stats.occupancy / stats.capacity : 0;
  stage.taken = stats.taken;
  stage.late = stats.late_takes;
}

HostActivity RunReport::activity() const {
  return run_.options.replicas && run_.options.speaks() ? run_.options.replicas->activity() : own_activity();
}

HostActivity RunReport::own_activity() const {
  HostActivity host = run_.runtime.activity();
  if (!steps_ || !steps_->stage()) return host;
  const StageStats stage = steps_->stage()->stats();
  for (std::size_t t = 0; t < stage.threads.size(); ++t) {
    StreamStats row;
    row.name = "stage" + std::to_string(t);
    row.busy_seconds = stage.threads[t].busy_seconds;
    row.wait_seconds["space"] = stage.threads[t].wait_seconds;
    row.cause = "stage";
    row.launches = stage.threads[t].batches;
    host.streams.push_back(std::move(row));
  }
  return host;
}

void RunReport::print_streams() const {
  std::fputs(
      (run_.options.role + ": time per stream during steps\n" + Monitor::stream_table(activity_, seconds_))
          .c_str(),
      stdout);
  if (const KeptRows* cache = run_.runtime.services().find<KeptRows>())
    if (const std::string text = cache->text(); !text.empty()) fmt::print("{}\n", text);
  if (rows_)
    if (const std::string text = reads_text(rows_->reads()); !text.empty()) fmt::print("{}\n", text);
  std::fflush(stdout);
}

bool RunReport::keeps_trace() const {
  return run_.options.speaks() && run_.runtime.trace() && !run_.job.metrics().trace_file().empty();
}

std::string RunReport::trace_file() const {
  return with_role(run_.job.metrics().trace_file(), run_.options.role);
}

void RunReport::write_trace() const {
  if (!keeps_trace()) return;
  const std::string file = trace_file();
  std::ofstream out(file);
  run_.runtime.trace()->write(out, run_.options.role);
  if (out.flush())
    log_info("trace: {}", file);
  else
    log_warning("metrics.trace_file: cannot write all of '{}': {}", file, std::strerror(errno));
}

}  // namespace braid::worker
