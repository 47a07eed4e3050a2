#include "worker/job/spread.h"

#include "proto/job.pb.h"
#include "worker/job/job.h"

namespace braid::worker {

bool spreads_variables(const proto::Job& job) {
  const proto::Strategy& strategy = job.strategy();
  if (!is_all_reduce(job) || strategy.average_every_steps() > 0) return false;
  return strategy.shard() == proto::Strategy::PARAMETERS ||
         (strategy.shard() != proto::Strategy::NOTHING && job.runtime().device() == proto::Runtime::CUDA);
}

}  // namespace braid::worker
