// The variation of ALLREDUCE and MIRRORED whose variables are spread over the ranks (strategy.shard
// PARAMETERS).
#pragma once

#include <memory>

#include "worker/strategies/strategy.h"

namespace braid::worker {

std::unique_ptr<Strategy> make_sharded_variables_strategy(const proto::Job& job, Runtime& runtime,
                                                          const Peers& peers);

}  // namespace braid::worker
