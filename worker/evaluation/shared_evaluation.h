// Whether the workers of a job measure it together, each on some batches of the test rows, or its leader
// alone while the others wait. Thread rule: any thread; all workers call the same.
#pragma once

#include "base/wait_context.h"

namespace braid::comm {
class Communicator;
}
namespace braid::proto {
class Job;
}

namespace braid::worker {

/// What the job says: workers of ALLREDUCE and HYBRID, whose variables are the same, can; where metrics look
/// at groups, rows have weights, or workers come and go, the leader measures alone.
bool may_share_evaluation(const proto::Job& job, int world);

/// Whether all workers say yes. Throws: what the communicator throws.
bool all_agree(bool yes, comm::Communicator& communicator, const WaitContext& wait);

}  // namespace braid::worker
