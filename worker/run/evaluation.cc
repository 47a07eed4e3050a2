#include "worker/run/evaluation.h"

#include "base/log.h"
#include "proto/job.pb.h"
#include "worker/monitor.h"
#include "worker/training_program.h"

namespace braid::worker {

RunEvaluation::RunEvaluation(const RunContext& run, const RunInput& input, Strategy& strategy,
                             const RunWaits& waits)
    : run_(run), metric_(input.model.metric), strategy_(strategy), waits_(waits) {
  if (!input.data.test || metric_ == ModelMetric::None) return;
  // An evaluation is one stream of plain forward steps: nothing of it overlaps training.
  CompileOptions forward = training_compile_options(run.job);
  forward.steps_in_flight = 1;
  forward.batch_siblings = BatchSiblings::Off;  // it takes the variables as training has laid them out
  evaluator_ = std::make_unique<Evaluator>(input.model, strategy, run.runtime, forward, input.data.test,
                                           run.job.evaluation().batch_size());
}

std::uint64_t RunEvaluation::interval() const {
  return run_.job.evaluation().enabled() ? run_.job.evaluation().every_steps() : 0;
}

bool RunEvaluation::is_due(std::uint64_t step) const {
  return evaluator_ && interval() > 0 && step % interval() == 0;
}

void RunEvaluation::measure(std::uint64_t step) {
  if (!evaluator_ || measured_ == step) return;
  strategy_.refresh_variables(waits_.start());
  const auto quality = evaluator_->run(waits_.step_time(), run_.stop.token());
  if (!quality) {
    log_info("step {}: the evaluation is broken off: asked to stop", step);
    return;
  }
  quality_ = quality;
  measured_ = step;
  run_.monitor.record_evaluation(step, metric(), quality_->value);
  log_info("step {}: {} {:.4f}", step, metric(), quality_->value);
  for (const auto& [task, value] : quality_->tasks)
    log_info("step {}: {} of {} {:.4f}", step, metric(), task, value);
}

const char* RunEvaluation::metric() const { return metric_ == ModelMetric::Accuracy ? "accuracy" : "auc"; }

std::map<std::string, double> RunEvaluation::metrics(std::uint64_t step) const {
  std::map<std::string, double> values;
  if (!has_measured(step)) return values;
  values[metric()] = quality_->value;
  for (const auto& [task, value] : quality_->tasks) values[metric() + ("/" + task)] = value;
  return values;
}

}  // namespace braid::worker
