// The communicator over NCCL for tensors in the memory of GPUs. Without NCCL at configure time (no_nccl.cc)
// the factory throws InvalidArgument that says so.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/rendezvous/rendezvous.h"

namespace braid::comm {

struct NcclOptions {
  int rank = 0;
  int size = 1;
  int device = 0;
  /// Keys at the rendezvous begin with this. Unique for each communicator of a generation; the same on all
  /// ranks.
  std::string name = "nccl";
};

std::unique_ptr<Communicator> make_nccl_communicator(const NcclOptions& options, Rendezvous& rendezvous,
                                                     const WaitContext& wait);

}  // namespace braid::comm
