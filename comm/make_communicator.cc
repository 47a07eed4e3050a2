#include "comm/make_communicator.h"

#include <fmt/core.h>

#include "base/error.h"
#include "comm/local/local_communicator.h"
#include "comm/mpi/mpi_communicator.h"
#include "comm/nccl/nccl_communicator.h"

namespace braid::comm {
namespace {

Rendezvous& required_rendezvous(const CommunicatorOptions& options) {
  if (!options.rendezvous)
    throw InvalidArgument(
        fmt::format("[{}] the ranks find each other through a rendezvous, and none was given",
                    backend_name(options.backend)));
  return *options.rendezvous;
}

}  // namespace

std::string_view backend_name(Backend backend) {
  switch (backend) {
    case Backend::Local:
      return "local";
    case Backend::Ring:
      return "ring";
    case Backend::Mpi:
      return "mpi";
    case Backend::Nccl:
      return "nccl";
  }
  return "unknown";
}

std::optional<Backend> backend_from_name(std::string_view name) {
  for (auto backend : {Backend::Local, Backend::Ring, Backend::Mpi, Backend::Nccl})
    if (name == backend_name(backend)) return backend;
  return std::nullopt;
}

std::unique_ptr<Communicator> make_communicator(const CommunicatorOptions& options, const WaitContext& wait) {
  auto& ring = options.ring;
  switch (options.backend) {
    case Backend::Local:
      if (ring.size != 1)
        throw InvalidArgument(fmt::format("[local] one process alone is a group of 1, not of {}", ring.size));
      return std::move(make_local_group(1).front());
    case Backend::Ring:
      return make_ring_communicator(ring, required_rendezvous(options), wait);
    case Backend::Mpi: {
      auto session = MpiSession::start();
      const bool fits = options.others_in_mpi ? session->size() >= ring.size : session->size() == ring.size;
      if (session->rank() != ring.rank || !fits)
        throw InvalidArgument(fmt::format("[mpi] the job says rank {} of {}, and MPI says rank {} of {}",
                                          ring.rank, ring.size, session->rank(), session->size()));
      return make_mpi_communicator(std::move(session), ring.size, wait);
    }
    case Backend::Nccl:
      return make_nccl_communicator({ring.rank, ring.size, options.device, ring.name},
                                    required_rendezvous(options), wait);
  }
  throw Internal("[comm] unknown backend");
}

}  // namespace braid::comm
