#include "worker/run/evaluation.h"

#include "base/log.h"
#include "proto/job.pb.h"
#include "worker/evaluation/job_metrics.h"
#include "worker/watch/monitor.h"

namespace braid::worker {
namespace {

EarlyStoppingOptions stopping_options(const proto::Evaluation& evaluation, const Metric& metric) {
  EarlyStoppingOptions options;
  options.higher_is_better = higher_is_better(metric.kind).value_or(true);
  options.patience = evaluation.early_stopping().patience();
  options.min_delta = evaluation.early_stopping().min_delta();
  if (evaluation.has_target()) options.target = evaluation.target();
  return options;
}

}  // namespace

RunEvaluation::RunEvaluation(const RunContext& run, const RunInput& input, Strategy& strategy,
                             const RunWaits& waits)
    : run_(run),
      metrics_(job_metrics(run.job, input.model)),
      strategy_(strategy),
      waits_(waits),
      data_(input.data),
      stopping_(stopping_options(run.job.evaluation(), metrics_.front())) {
  if (!data_.test) return;
  evaluator_ = std::make_unique<Evaluator>(input.model, metrics_, strategy, run.runtime,
                                           forward_compile_options(run.job), data_.test,
                                           run.job.evaluation().batch_size());
}

std::uint64_t RunEvaluation::interval() const {
  return run_.job.evaluation().enabled() ? run_.job.evaluation().every_steps() : 0;
}

bool RunEvaluation::is_due(std::uint64_t step) const {
  return evaluator_ && interval() > 0 && step % interval() == 0;
}

bool RunEvaluation::keeps_best() const {
  return evaluator_ &&
         (run_.job.evaluation().early_stopping().patience() > 0 || run_.job.evaluation().has_target());
}

void RunEvaluation::measure(std::uint64_t step) {
  if (!evaluator_ || measured_ == step) return;
  run_.monitor.set_state("evaluating");
  strategy_.refresh_variables(waits_.start());
  const auto measured = evaluator_->run(next_test_rows(data_, run_.job.evaluation().batch_size()),
                                        waits_.step_time(), run_.stop.token());
  if (!measured) {
    log_info("step {}: evaluation stopped: asked to stop", step);
    return;
  }
  last_values_ = measured;
  measured_ = step;
  improved_ = stopping_.add(step, last_values_->value(metric().name()));
  run_.monitor.record_evaluation(step, *last_values_);
  log_metrics(step, *last_values_);
}

std::map<std::string, double> RunEvaluation::metrics(std::uint64_t step) const {
  std::map<std::string, double> values;
  if (!has_measured(step)) return values;
  for (const MetricValue& metric : last_values_->flat()) values[metric.name] = metric.value;
  return values;
}

}  // namespace braid::worker
