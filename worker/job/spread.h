// Jobs whose workers each have a run of every large variable (strategy.shard). Thread rule: a pure function.
#pragma once

namespace braid::proto {
class Job;
}

namespace braid::worker {

/// strategy.shard PARAMETERS; on GPUs OPTIMIZER and GRADIENTS too, which are made that way there.
bool spreads_variables(const proto::Job& job);

}  // namespace braid::worker
