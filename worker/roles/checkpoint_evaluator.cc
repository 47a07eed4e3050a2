#include "worker/roles/checkpoint_evaluator.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "proto/job.pb.h"
#include "worker/checkpoint/checkpointer.h"
#include "worker/checkpoint/followed_run.h"
#include "worker/checkpoint/held_checkpoints.h"
#include "worker/evaluation/evaluator.h"
#include "worker/evaluation/forward_job.h"
#include "worker/evaluation/job_metrics.h"
#include "worker/input/data.h"
#include "worker/input/job_model.h"
#include "worker/job/job.h"
#include "worker/metrics/metrics_json.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kWait{200};  // between two looks at requests to stop

double seconds_after(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

class CheckpointEvaluation {
 public:
  CheckpointEvaluation(const proto::Job& job, const std::filesystem::path& data_dir, Runtime& runtime)
      : job_(job), runtime_(runtime) {
    data_ = load_data(job_, data_dir, true);
    model_ = job_model(job_, *data_.train);
    if (!data_.test) throw InvalidArgument("an evaluator needs input.test_files");
    metrics_ = job_metrics(job_, model_);
    total_ = total_steps(job_, *data_.train);
    data_.train.reset();
    data_.stream.reset();
    strategy_ = make_strategy(job_, runtime_, {});
    evaluator_ =
        std::make_unique<Evaluator>(model_, metrics_, *strategy_, runtime_, forward_compile_options(job_),
                                    data_.test, job_.evaluation().batch_size());
    evaluator_->bind();
  }

  std::uint64_t total() const { return total_; }
  const std::vector<Metric>& metrics() const { return metrics_; }

  /// Nothing when the checkpoint cannot be read, damaged or removed by the workers meanwhile, which is said,
  /// and when it is asked to stop.
  std::optional<MetricValues> measure(const CheckpointInfo& info, const std::stop_token& stop) {
    try {
      restore_variables(info, job_.seed(), evaluator_->graph(), runtime_);
    } catch (const Error& error) {
      if (!std::filesystem::exists(info.directory)) {
        log_warning("the checkpoint of step {} was removed before it was measured", info.meta.step);
        return std::nullopt;
      }
      if (error.code() != ErrorCode::DataLoss) throw;
      log_warning("skipping a damaged checkpoint: {}", error.message());
      return std::nullopt;
    }
    return evaluator_->run(next_test_rows(data_, job_.evaluation().batch_size()), kForwardTime, stop);
  }

 private:
  const proto::Job job_;
  Runtime& runtime_;
  JobData data_;
  ModelGraph model_;
  std::vector<Metric> metrics_;
  std::uint64_t total_ = 0;
  std::unique_ptr<Strategy> strategy_;
  std::unique_ptr<Evaluator> evaluator_;
};

}  // namespace

EvaluationResult evaluate_checkpoints(const proto::Job& job, const std::filesystem::path& data_dir,
                                      RunStart start, Runtime& runtime, Monitor& monitor,
                                      const StopFlag& stop) {
  if (job.checkpoint().directory().empty())
    throw InvalidArgument("an evaluator needs checkpoint.directory, which the workers write");
  const FollowedRun followed(
      job.checkpoint().directory(), start,
      std::chrono::seconds(static_cast<std::int64_t>(job.strategy().start_deadline_seconds())));
  // Before data are loaded, which may take longer than the workers take for their first checkpoints.
  HeldCheckpoints waiting(job.checkpoint().directory(), [&] { return followed.checkpoints(); });
  CheckpointEvaluation evaluation(without_peers(job), data_dir, runtime);
  std::string names;
  for (const Metric& metric : evaluation.metrics()) names += (names.empty() ? "" : ", ") + metric.name();
  log_info("evaluator: {} of the checkpoints in {} up to step {}", names, job.checkpoint().directory(),
           evaluation.total());

  EvaluationResult result;
  result.job = job.name();
  const auto begin = Clock::now();
  auto progress_at = begin;
  std::optional<CheckpointRun> run;
  std::uint64_t last = 0;  // step that was measured last; 0: none of this run
  // How many steps the leader makes of batches that a queue gives out, its last checkpoint tells.
  const std::uint64_t last_step = takes_batches(job) ? UINT64_MAX : evaluation.total();
  while (last < last_step) {
    if (stop.requested()) {
      result.exit = kExitTerminated;
      break;
    }
    const std::optional<CheckpointInfo> next = waiting.take(kWait);
    if (!next) {
      if (seconds_after(progress_at) > job.evaluation().patience_seconds())
        throw Unavailable(
            fmt::format("no new checkpoint in '{}' for {} s; {}", job.checkpoint().directory(),
                        job.evaluation().patience_seconds(),
                        last > 0 ? fmt::format("the last was that of step {} of {}", last, evaluation.total())
                                 : "there was none"));
      continue;
    }
    if (run && !run->same_as(next->meta.run)) last = 0;  // steps are counted anew
    run = next->meta.run;
    const auto measured = evaluation.measure(*next, stop.token());
    if (!measured) continue;
    progress_at = Clock::now();
    const std::uint64_t before = last > 0 ? last : next->meta.step;
    if (const std::uint64_t every = job.checkpoint().every_steps();
        every > 0 && next->meta.step > before + every)
      log_warning("between step {} and {} checkpoints were pruned before they were seen", before,
                  next->meta.step);
    last = result.last_step = next->meta.step;
    ++result.evaluations;
    result.measured = measured;
    log_metrics(last, *measured);
    monitor.record_evaluation(last, *measured);
    if (next->meta.attributes.contains(kEndedEarly)) break;  // none follows
  }
  result.seconds = seconds_after(begin);
  return result;
}

std::string EvaluationResult::to_json() const {
  nlohmann::ordered_json out;
  out["job"] = job;
  out["evaluations"] = evaluations;
  out["last_step"] = last_step;
  if (measured) out.update(nlohmann::ordered_json::parse(metrics_json(*measured)));
  out["seconds"] = seconds;
  out["exit"] = exit;
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace braid::worker
