// The communicator over NCCL for tensors in the memory of GPUs, one rank a GPU.
//
// On a CUDA stream an operation is enqueued and returns; the stream may be capturing. On StreamRef::host()
// the arrays are the host's: they pass through device memory, and the call returns when it is done (start
// values, plans and votes go this way).
//
// Deadlines. NCCL's kernels wait for the other ranks without end, so a thread watches: operations on streams
// by an event behind each, operations in captured graphs by begin_step() and end_step(). At a deadline it
// asks the rendezvous who is behind or silent, names the rank, and aborts, which ends the kernels; what they
// left in memory is undefined. A rank that gives up says so to the others through the rendezvous.
//
// Between GPUs of one host that can write each other's memory (peer_window.h), sums of a megabyte and less
// and the exchanges of open_exchange() are kernels of ours; NCCL_P2P_DISABLE=1 on any rank leaves all to
// NCCL.
//
// Arguments that differ between ranks are not detected. Sums are NCCL's: the same bits for the same size and
// settings. NCCL_* variables have their usual meaning (NCCL_NVLS_ENABLE=0, NCCL_ALGO=Ring). Without NCCL at
// configure time (no_nccl.cc) the factory throws InvalidArgument that says so.
#pragma once

#include <memory>
#include <string>

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

/// `rendezvous` outlives the communicator. Throws: DeadlineExceeded naming the ranks that did not come.
std::unique_ptr<Communicator> make_nccl_communicator(const NcclOptions& options, Rendezvous& rendezvous,
                                                     const WaitContext& wait);

/// Lets NCCL tell which algorithms it takes, as log lines, one for each kind of operation; rank 0 is told.
/// Does nothing where NCCL_DEBUG is set, since NCCL then tells it itself, and without NCCL.
/// REQUIRES: called before other threads exist, by one that will use NCCL.
void log_nccl_algorithms();

}  // namespace braid::comm
