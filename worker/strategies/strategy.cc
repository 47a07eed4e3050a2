#include "worker/strategies/strategy.h"

#include <mutex>

#include "base/error.h"
#include "proto/job.pb.h"
#include "worker/strategies/allreduce_ops.h"
#include "worker/strategies/averaging_ops.h"
#include "worker/strategies/combine_ops.h"
#include "worker/strategies/compression_ops.h"
#include "worker/strategies/distinct_ops.h"
#include "worker/strategies/group_ops.h"
#include "worker/strategies/home_ops.h"
#include "worker/strategies/hybrid_ops.h"
#include "worker/strategies/ordered_rows_ops.h"
#include "worker/strategies/owner_ops.h"
#include "worker/strategies/pipeline_ops.h"
#include "worker/strategies/ps_ops.h"
#include "worker/strategies/shard_ops.h"
#include "worker/strategies/sync_batch_norm.h"

namespace braid::worker {

std::uint64_t Strategy::take_over(int, std::uint64_t, const WaitContext&) {
  throw Internal("strategy " + std::string(name()) + " has no elastic jobs");
}

std::unique_ptr<Strategy> make_strategy(const proto::Job& job, Runtime& runtime, const Peers& peers) {
  switch (job.strategy().kind()) {
    case proto::Strategy::PS:
      return make_ps_strategy(job, runtime, peers);
    case proto::Strategy::ALLREDUCE:
      return make_allreduce_strategy(job, runtime, peers);
    case proto::Strategy::MIRRORED:
      return peers.world == 1 ? make_local_strategy(job) : make_allreduce_strategy(job, runtime, peers);
    case proto::Strategy::HYBRID:
      return make_hybrid_strategy(job, runtime, peers);
    case proto::Strategy::PIPELINE:
      return make_pipeline_strategy(job, runtime, peers);
    case proto::Strategy::TENSOR:
      return make_tensor_strategy(job, runtime, peers);
    case proto::Strategy::EXPERTS:
      return make_experts_strategy(job, runtime, peers);
    case proto::Strategy::PS_ALLREDUCE:
      return make_ps_allreduce_strategy(job, runtime, peers);
    default:
      return make_local_strategy(job);
  }
}

void register_strategy_ops() {
  static std::once_flag once;
  std::call_once(once, [] {
    register_allreduce_ops(OpRegistry::global());
    register_averaging_ops(OpRegistry::global());
    register_combine_ops(OpRegistry::global());
    register_compression_ops(OpRegistry::global());
    register_group_ops(OpRegistry::global());
    register_home_ops(OpRegistry::global());
    register_hybrid_ops(OpRegistry::global());
    register_ordered_rows_ops(OpRegistry::global());
    register_owner_ops(OpRegistry::global());
    register_distinct_ops(OpRegistry::global());
    register_pipeline_ops(OpRegistry::global());
    register_ps_ops(OpRegistry::global());
    register_shard_ops(OpRegistry::global());
    register_sync_batch_norm_ops(OpRegistry::global());
  });
}

}  // namespace braid::worker
