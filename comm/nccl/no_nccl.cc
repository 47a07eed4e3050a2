// Stands in for NCCL where the build has none.
#include "base/error.h"
#include "comm/nccl/nccl_communicator.h"

namespace braid::comm {

std::unique_ptr<Communicator> make_nccl_communicator(const NcclOptions&, Rendezvous&, const WaitContext&) {
  throw InvalidArgument("[nccl] this build has no NCCL: use the ring or MPI");
}

void log_nccl_algorithms() {}

}  // namespace braid::comm
