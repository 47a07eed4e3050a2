// One place that makes a communicator of any kind.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "comm/communicator.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/ring/ring_communicator.h"

namespace braid::comm {

enum class Backend { Local, Ring, Mpi, Nccl };

std::string_view backend_name(Backend backend);
std::optional<Backend> backend_from_name(std::string_view name);  // "local", "ring", "mpi", "nccl"

struct CommunicatorOptions {
  Backend backend = Backend::Ring;
  RingOptions ring;            // rank, size and name are those of every backend; the rest is for the ring
  int device = 0;              // Nccl
  bool others_in_mpi = false;  // Mpi: ranks behind the first `size` are of the job and no members
  Rendezvous* rendezvous = nullptr;  // Ring, Nccl
};

/// Local: a group of one; make_local_group makes larger ones. Mpi: rank and size are MPI's, and must be those
/// of the options, but for others_in_mpi. Throws: as the backend's own factory; InvalidArgument for options
/// that do not fit, or a backend that this build lacks.
std::unique_ptr<Communicator> make_communicator(const CommunicatorOptions& options, const WaitContext& wait);

}  // namespace braid::comm
