// The last lines of a process's run on standard output. Processes that share one output (mpirun, srun) say
// them once: the leader has a table of all workers and the job's "result:" line. Thread rule: one thread.
#pragma once

#include <string>

#include "launch/cluster_spec.h"

namespace braid::comm {
class Communicator;
}

namespace braid::worker {

/// `result`: a JSON object. `communicator`: of the workers, where there is one; all of them call it then. A
/// worker of a shared output that no communicator joins to the leader says "result of worker 1: {...}". The
/// variable BRAID_RESULT_FILE names a file in place of the output.
void print_result(const std::string& result, int exit, const launch::ClusterSpec& cluster,
                  comm::Communicator* communicator);

}  // namespace braid::worker
