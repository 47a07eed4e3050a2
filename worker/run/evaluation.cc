#include "worker/run/evaluation.h"

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "comm/communicator.h"
#include "proto/job.pb.h"
#include "worker/evaluation/job_metrics.h"
#include "worker/strategies/table_service.h"
#include "worker/watch/monitor.h"

namespace braid::worker {
namespace {

constexpr std::chrono::minutes kLeastPatience{5};

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
      stopping_(stopping_options(run.job.evaluation(), metrics_.front())),
      shared_(input.shares_test) {
  if (!data_.test) return;
  evaluator_ = std::make_unique<Evaluator>(input.model, metrics_, strategy, run.runtime,
                                           forward_compile_options(run.job), data_.test,
                                           run.job.evaluation().batch_size());
}

std::uint64_t RunEvaluation::interval() const {
  return run_.job.evaluation().enabled() ? run_.job.evaluation().every_steps() : 0;
}

bool RunEvaluation::is_due(std::uint64_t step) const {
  return measures() && interval() > 0 && step % interval() == 0;
}

bool RunEvaluation::helps_at(std::uint64_t step) const {
  return is_shared() && !measures() && interval() > 0 && step % interval() == 0;
}

bool RunEvaluation::keeps_best() const {
  return measures() &&
         (run_.job.evaluation().early_stopping().patience() > 0 || run_.job.evaluation().has_target());
}

std::optional<MetricValues> RunEvaluation::run_evaluator() {
  run_.monitor.set_state("evaluating");
  const std::int64_t batch = run_.job.evaluation().batch_size();
  if (!shared_) {
    strategy_.refresh_variables(waits_.start());
    return evaluator_->run(next_test_rows(data_, batch), waits_.step_time(), run_.stop.token());
  }
  const int rank = run_.peers.rank, world = run_.peers.world;
  const Evaluator::NextShared next = [part = next_test_share(data_, batch, rank, world), rank, world] {
    const TestShare share = part();
    return share.is_whole ? SharedRows{share.table, share.first_batch}
                          : SharedRows{share.table, share.first_batch, rank, world};
  };
  // The ranks' tables answer lookups of all.
  TableService* const tables = run_.runtime.services().find<TableService>();
  if (tables) tables->set_together(true);
  // Another worker may make some batches, and read its part of the rows, meanwhile.
  const auto patience = std::max<std::chrono::nanoseconds>(10 * waits_.step_time(), kLeastPatience);
  const Evaluator::Peers peers{*run_.peers.communicator, tables != nullptr, patience};
  const auto measured = evaluator_->run_shared(next, peers, waits_.step_time(), run_.stop.token());
  if (tables) tables->set_together(false);
  return measured;
}

void RunEvaluation::help(std::uint64_t step) {
  if (!is_shared() || measures() || helped_ == step) return;
  if (run_evaluator()) helped_ = step;
}

void RunEvaluation::measure(std::uint64_t step) {
  if (!measures() || measured_ == step) return;
  const auto measured = run_evaluator();
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
