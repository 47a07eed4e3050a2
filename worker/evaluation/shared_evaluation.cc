#include "worker/evaluation/shared_evaluation.h"

#include <algorithm>

#include "comm/communicator.h"
#include "proto/job.pb.h"
#include "worker/job/spread.h"

namespace braid::worker {
namespace {

bool looks_at_groups(const proto::Evaluation& evaluation) {
  const auto does = [](int metric) {
    return metric == proto::Evaluation::GROUP_AUC || metric == proto::Evaluation::PRECISION_AT_K ||
           metric == proto::Evaluation::RECALL_AT_K || metric == proto::Evaluation::NDCG_AT_K;
  };
  return !evaluation.group_column().empty() || does(evaluation.metric()) ||
         std::ranges::any_of(evaluation.metrics(), does);
}

bool has_weights(const proto::Input& input) {
  const auto is_weight = [](const proto::Column& column) { return column.kind() == proto::Column::WEIGHT; };
  // Arrays are columns of any name.
  return std::ranges::any_of(input.columns(), is_weight) ||
         std::ranges::any_of(input.csv().columns(), is_weight) || input.format() == proto::Input::NPY;
}

}  // namespace

bool may_share_evaluation(const proto::Job& job, int world) {
  const proto::Strategy& strategy = job.strategy();
  const bool is_alike = strategy.kind() == proto::Strategy::HYBRID ||
                        (strategy.kind() == proto::Strategy::ALLREDUCE &&
                         strategy.average_every_steps() == 0 && !spreads_variables(job));
  return world > 1 && is_alike && !strategy.has_elastic() && job.evaluation().enabled() &&
         !looks_at_groups(job.evaluation()) && !has_weights(job.input());
}

bool all_agree(bool yes, comm::Communicator& communicator, const WaitContext& wait) {
  std::int32_t said = yes ? 1 : 0;
  communicator.all_reduce(&said, &said, 1, DType::Int32, comm::ReduceOp::Min, StreamRef::host(), wait);
  return said != 0;
}

}  // namespace braid::worker
