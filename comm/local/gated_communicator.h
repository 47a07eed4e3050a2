// A communicator of threads of one process whose GPUs meet in kernels. While a kernel of one waits for that
// of another, a call of the other's thread that frees or maps memory may wait for it in turn, as the driver
// has one lock a process: both would wait until a deadline. So may one that launches a kernel for the first
// time, which the driver loads then. So the ranks of the process come to a gate before each step and each
// operation, and behind what is enqueued on GPUs: none is in a kernel of the communicator while another
// prepares, loads or saves something. Replays of a captured step call no operations: they cost one meeting
// each.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/local/gate.h"

namespace braid::comm {

/// `place`: of this rank among those of the process, which share `gate`. send() and recv() do not come to it.
std::unique_ptr<Communicator> make_gated_communicator(std::unique_ptr<Communicator> communicator,
                                                      std::shared_ptr<Gate> gate, int place);

}  // namespace braid::comm
