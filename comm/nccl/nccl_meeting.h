// How the ranks of an NCCL communicator find each other before there is one. Thread rule: pure functions.
#pragma once

#include <nccl.h>

#include <string>
#include <vector>

#include "comm/nccl/nccl_communicator.h"
#include "comm/rendezvous/rendezvous.h"

namespace braid::comm {

/// Tells the others who this is, and waits until all have: their names, as "rank 1 (host, cuda:0)". Throws:
/// DeadlineExceeded naming who did not come.
std::vector<std::string> meet(const NcclOptions& options, Rendezvous& rendezvous, const WaitContext& wait);

/// Rank 0 draws the number by which NCCL's own bootstrap finds the ranks. Throws: DataLoss.
ncclUniqueId share_id(const NcclOptions& options, Rendezvous& rendezvous, const WaitContext& wait);

}  // namespace braid::comm
