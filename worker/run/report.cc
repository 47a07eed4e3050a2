#include "worker/run/report.h"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/exec/trace.h"
#include "proto/job.pb.h"
#include "worker/activity.h"
#include "worker/monitor.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {

RunReport::RunReport(const RunContext& run)
    : run_(run), step_log_(with_role(run.job.metrics().steps_file(), run.options.role)) {
  if (run_.runtime.trace() && !std::ofstream(trace_file(), std::ios::app))
    throw InvalidArgument("metrics.trace_file: cannot write '" + trace_file() + "'");
}

RunReport::~RunReport() { run_.monitor.watch_host({}); }

void RunReport::watch(const TrainingSteps& steps) {
  steps_ = &steps;
  run_.monitor.watch_host([this] { return activity(); });
}

void RunReport::begin(std::uint64_t first, std::uint64_t total, const BatchShare& share) {
  share_ = share;
  const ProgressMode mode = run_.peers.leader() ? progress_mode() : ProgressMode::Off;
  progress_.emplace(mode, first, total, run_.job.metrics().progress_seconds());
  resume();
}

void RunReport::record(const StepOutcome& outcome) {
  loss_ = outcome.loss;
  run_.monitor.record_step(outcome.step, loss_, share_.rows(), outcome.seconds);
  step_log_.write(outcome.step, loss_, share_.rows(), outcome.seconds);
  if (!std::isfinite(loss_))
    throw Internal("loss is " + std::to_string(loss_) + " at step " + std::to_string(outcome.step) +
                   "; --check-numerics names the node that makes the first such number");
  progress_->update(outcome.step, loss_, share_.global_rows, step_seconds());
}

void RunReport::evaluated(const std::string& metric, double value) { progress_->set_metric(metric, value); }

double RunReport::step_seconds() const {
  return seconds_ + std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

void RunReport::resume() {
  add(elsewhere_, difference(activity(), paused_at_));
  begin_ = std::chrono::steady_clock::now();
}

void RunReport::pause() {
  seconds_ = step_seconds();
  paused_at_ = activity();
}

void RunReport::finish() {
  pause();
  activity_ = difference(paused_at_, elsewhere_);
  progress_->finish();
}

HostActivity RunReport::activity() const {
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
  std::fflush(stdout);
}

std::string RunReport::trace_file() const {
  return with_role(run_.job.metrics().trace_file(), run_.options.role);
}

void RunReport::write_trace() const {
  if (!run_.runtime.trace()) return;
  const std::string file = trace_file();
  std::ofstream out(file);
  run_.runtime.trace()->write(out, run_.options.role);
  if (!out.flush()) throw InvalidArgument("metrics.trace_file: cannot write '" + file + "'");
  log_info("trace: {}", file);
}

void RunReport::write_trace_of_failure() const {
  try {
    write_trace();
  } catch (const Error& e) {
    log_warning("{}", e.message());
  }
}

}  // namespace braid::worker
