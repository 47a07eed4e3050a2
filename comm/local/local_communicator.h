// The communicator of ranks that are threads of one process: each reads the others' memory where it is. Sums
// are made in the order that comm/sum_order.h says, the ring's. All operations wait for all ranks (send and
// recv: for the other), so a return means that nobody reads the caller's memory any more.
//
// Arguments that differ between ranks are an InvalidArgument on all of them. A rank whose communicator is
// destroyed while others wait for it is gone: Unavailable.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace braid::comm {

/// One communicator a rank, each for its thread. REQUIRES: size >= 1.
std::vector<std::unique_ptr<Communicator>> make_local_group(int size);

}  // namespace braid::comm
