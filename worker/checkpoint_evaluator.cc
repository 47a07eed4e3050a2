#include "worker/checkpoint_evaluator.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "engine/import/import.h"
#include "proto/graph.pb.h"
#include "proto/job.pb.h"
#include "worker/data.h"
#include "worker/evaluator.h"
#include "worker/followed_run.h"
#include "worker/held_checkpoints.h"
#include "worker/job/job.h"
#include "worker/stored_variables.h"
#include "worker/strategies/strategy.h"
#include "worker/training_program.h"

namespace braid::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kWait{200};  // between two looks at requests to stop
constexpr std::chrono::hours kBatchTime{1};      // there is no peer to wait for, only work

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

class CheckpointEvaluation {
 public:
  CheckpointEvaluation(const proto::Job& job, const std::filesystem::path& data_dir, Runtime& runtime)
      : job_(job), runtime_(runtime) {
    data_ = load_data(job_, data_dir, true);
    model_ = job_model(job_, *data_.train);
    if (!data_.test || model_.metric == ModelMetric::None)
      throw InvalidArgument(data_.test ? "an evaluator needs a model with a metric, and '" +
                                             job_.model().name() + "' has none"
                                       : std::string("an evaluator needs input.test_files"));
    total_ = total_steps(job_, *data_.train);
    data_.train.reset();
    graph_ = import_graph(model_.inference ? *model_.inference : *model_.graph, "model");
    strategy_ = make_strategy(job_, runtime_, {});
    CompileOptions options = training_compile_options(job_);
    options.steps_in_flight = 1;
    options.batch_siblings = BatchSiblings::Off;  // variables are read one by one, too
    evaluator_ = std::make_unique<Evaluator>(model_, *strategy_, runtime_, options, data_.test,
                                             job_.evaluation().batch_size());
    evaluator_->bind();
  }

  std::uint64_t total() const { return total_; }
  ModelMetric metric() const { return model_.metric; }

  /// Nothing when the checkpoint cannot be read, damaged or removed by the workers meanwhile, which is said,
  /// and when it is asked to stop.
  std::optional<Quality> measure(const CheckpointInfo& info, const std::stop_token& stop) {
    try {
      restore(info);
    } catch (const Error& error) {
      if (!std::filesystem::exists(info.directory)) {
        log_warning("the checkpoint of step {} was removed before it was measured", info.meta.step);
        return std::nullopt;
      }
      if (error.code() != ErrorCode::DataLoss) throw;
      log_warning("a damaged checkpoint is left out: {}", error.message());
      return std::nullopt;
    }
    return evaluator_->run(kBatchTime, stop);
  }

 private:
  void restore(const CheckpointInfo& info) {
    const StoredVariables stored(info, job_.seed());
    for (const VariableInfo& variable : list_variables(graph_))
      runtime_.variables().write(variable.name, stored.value(graph_, variable));
  }

  const proto::Job job_;
  Runtime& runtime_;
  JobData data_;
  ModelGraph model_;
  Graph graph_;
  std::uint64_t total_ = 0;
  std::unique_ptr<Strategy> strategy_;
  std::unique_ptr<Evaluator> evaluator_;
};

}  // namespace

EvaluationResult evaluate_checkpoints(const proto::Job& job, const std::filesystem::path& data_dir,
                                      RunStart start, Runtime& runtime, Monitor& monitor,
                                      const StopFlag& stop) {
  proto::Job alone = job;
  alone.mutable_strategy()->set_kind(proto::Strategy::LOCAL);
  if (job.checkpoint().directory().empty())
    throw InvalidArgument("an evaluator needs checkpoint.directory, which the workers write");
  const FollowedRun followed(
      job.checkpoint().directory(), start,
      std::chrono::seconds(static_cast<std::int64_t>(job.strategy().start_deadline_seconds())));
  // Before data are loaded, which may take longer than the workers take for their first checkpoints.
  HeldCheckpoints waiting(job.checkpoint().directory(), [&] { return followed.checkpoints(); });
  CheckpointEvaluation evaluation(alone, data_dir, runtime);
  const char* const metric = evaluation.metric() == ModelMetric::Accuracy ? "accuracy" : "auc";
  log_info("evaluator: {} of the checkpoints in {} up to step {}", metric, job.checkpoint().directory(),
           evaluation.total());

  EvaluationResult result;
  result.job = job.name();
  result.metric = evaluation.metric();
  const auto begin = Clock::now();
  auto progress_at = begin;
  std::optional<CheckpointRun> run;
  std::optional<std::uint64_t> last;
  while (last.value_or(0) < evaluation.total()) {
    if (stop.requested()) {
      result.exit = kExitTerminated;
      break;
    }
    const std::optional<CheckpointInfo> next = waiting.take(kWait);
    if (!next) {
      if (seconds_since(progress_at) > job.evaluation().patience_seconds())
        throw Unavailable(
            fmt::format("no new checkpoint in '{}' for {} s; {}", job.checkpoint().directory(),
                        job.evaluation().patience_seconds(),
                        last ? fmt::format("the last was that of step {} of {}", *last, evaluation.total())
                             : "there was none"));
      continue;
    }
    if (run && !run->same_as(next->meta.run)) last.reset();  // steps are counted anew
    run = next->meta.run;
    const auto quality = evaluation.measure(*next, stop.token());
    if (!quality) continue;
    progress_at = Clock::now();
    if (const std::uint64_t every = job.checkpoint().every_steps();
        last && every > 0 && next->meta.step > *last + every)
      log_warning("between step {} and {} checkpoints were pruned before they were seen", *last,
                  next->meta.step);
    last = result.last_step = next->meta.step;
    ++result.evaluations;
    result.quality = quality->value;
    result.tasks = quality->tasks;
    log_info("step {}: {} {:.4f}", *last, metric, quality->value);
    for (const auto& [task, value] : quality->tasks)
      log_info("step {}: {} of {} {:.4f}", *last, metric, task, value);
    monitor.record_evaluation(*last, metric, quality->value);
  }
  result.seconds = seconds_since(begin);
  return result;
}

std::string EvaluationResult::to_json() const {
  nlohmann::ordered_json out;
  out["job"] = job;
  out["evaluations"] = evaluations;
  out["last_step"] = last_step;
  const bool accuracy = metric == ModelMetric::Accuracy;
  if (quality) out[accuracy ? "accuracy" : "auc"] = *quality;
  for (const auto& [task, value] : tasks) out[accuracy ? "accuracy_of_tasks" : "auc_of_tasks"][task] = value;
  out["seconds"] = seconds;
  out["exit"] = exit;
  return out.dump();
}

}  // namespace braid::worker
