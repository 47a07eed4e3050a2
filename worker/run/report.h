// What a run tells: progress, metrics and a line a step while it trains; then the table of streams, the trace
// file, and the numbers of the result line. All of these are of the steps alone, without what happens between
// them (evaluations, checkpoints) and before them (measuring streams): seconds, examples a second, and what
// streams did. Thread rule: the training thread; the HTTP thread reads what watch() gave it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/metrics.h"
#include "engine/exec/runtime.h"
#include "engine/input/stream/block_source.h"
#include "watch/status.h"
#include "worker/input/batch_share.h"
#include "worker/run/context.h"
#include "worker/run/event_log.h"
#include "worker/run/mllog.h"
#include "worker/run/result.h"
#include "worker/run/steps.h"
#include "worker/watch/progress.h"
#include "worker/watch/step_log.h"

namespace braid::worker {

class RunReport {
 public:
  /// Throws: InvalidArgument when a file that the job asks for cannot be written: at the end would be late to
  /// learn of it.
  explicit RunReport(const RunContext& run);
  ~RunReport();
  RunReport(const RunReport&) = delete;
  RunReport& operator=(const RunReport&) = delete;

  /// Shows these steps' streams over HTTP from now on. `steps` outlives it. `rows`: that are read while they
  /// are used; null: none are.
  void watch(const TrainingSteps& steps, std::shared_ptr<const BlockSource> rows);

  /// Steps from `first` on begin, where the job is at `job_step` of `total`; of their rows this worker has
  /// `share`; all workers have `train_rows`.
  void begin(std::uint64_t first, std::uint64_t job_step, std::uint64_t total, const BatchShare& share,
             std::int64_t train_rows);
  /// Throws: Internal for a loss that is no number, unless the step was skipped for it; and where nothing but
  /// skipped steps come, whatever the scale of the loss.
  void record(const StepOutcome& outcome);
  /// watch()'s steps end, and others follow.
  void unwatch();
  /// The steps go on in another world, where this worker has `share`. REQUIRES: watch() of new steps.
  void go_on(const BatchShare& share);
  /// Steps stop for something else, and go on. The clock is stopped meanwhile.
  void pause();
  void resume();
  /// An evaluation begins, of the variables of that step. It may be one that there was.
  void evaluating(std::uint64_t step) { mllog_.evaluating(step); }
  /// Progress shows `metric` from now on. No step is in flight.
  void evaluated(std::uint64_t step, const Metric& metric, const MetricValues& measured);
  /// The program whose steps are made.
  void draw(const Program& program) { events_.begin(program); }
  /// No step follows.
  void finish();

  float loss() const { return loss_; }  // of the last step
  std::uint64_t skipped_steps() const {
    return skipped_steps_ ? static_cast<std::uint64_t>(skipped_steps_->value()) : 0;
  }
  /// Choices of experts so far; nothing where a model has none.
  std::optional<std::int64_t> dropped_tokens() const {
    return dropped_tokens_ ? std::optional(static_cast<std::int64_t>(dropped_tokens_->value()))
                           : std::nullopt;
  }
  double seconds() const { return seconds_; }
  /// The run ends with the variables of that step; `interrupted`: it is to be resumed.
  void end(std::uint64_t step, bool interrupted) { mllog_.end(step, interrupted); }
  /// Busy time per stream during steps, and at which rate files were read, to standard output.
  void print_streams() const;
  /// Does nothing when the job asks for no trace. A file that cannot be written, as on a full disk, is a
  /// warning.
  void write_trace() const;

 private:
  HostActivity own_activity() const;  // of the runtime's streams and the stages' threads, so far
  HostActivity activity() const;      // of all replicas of the process
  double step_seconds() const;        // so far
  void tell_stages(watch::Status& status) const;
  void count_dropped(std::int64_t choices);
  bool keeps_trace() const;  // beside windows that somebody asks for
  std::string trace_file() const;

  const RunContext run_;
  StepLog step_log_;
  EventLog events_;
  MlLog mllog_;
  const TrainingSteps* steps_ = nullptr;
  std::shared_ptr<const BlockSource> rows_;  // of those steps, that are streamed
  std::optional<Progress> progress_;
  BatchShare share_;
  std::uint64_t total_ = 0;
  std::int64_t recorded_ = 0;       // steps
  std::uint64_t traced_until_ = 0;  // step of a run directory's trace
  std::optional<std::chrono::steady_clock::time_point> paused_since_;
  float loss_ = 0;
  Counter* skipped_steps_ = nullptr;  // of a scaled loss; the registry's
  int skipped_in_a_row_ = 0;
  Counter* dropped_tokens_ = nullptr;  // of the registry, from the first step that counts them
  std::chrono::steady_clock::time_point begin_;
  double seconds_ = 0;      // until `begin_`
  HostActivity elsewhere_;  // outside of steps: before the first one, and in pauses that are over
  HostActivity paused_at_;
  HostActivity activity_;  // of all steps, once they have ended
};

}  // namespace braid::worker
