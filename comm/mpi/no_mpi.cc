// Stands in for MPI where the build has none.
#include "base/error.h"
#include "comm/mpi/mpi_communicator.h"
#include "comm/mpi/mpi_session.h"

namespace braid::comm {
namespace {

[[noreturn]] void refuse() {
  throw InvalidArgument(
      "[mpi] this build has no MPI: install libopenmpi-dev and configure again, or use the ring");
}

}  // namespace

bool mpi_available() { return false; }

struct MpiSession::Impl {};
MpiSession::MpiSession() { refuse(); }
MpiSession::~MpiSession() = default;
std::shared_ptr<MpiSession> MpiSession::start() { refuse(); }
int MpiSession::rank() const { refuse(); }
int MpiSession::size() const { refuse(); }
const std::string& MpiSession::name_of(int) const { refuse(); }
std::vector<std::string> MpiSession::exchange(const std::string&, const WaitContext&) { refuse(); }
std::mutex& MpiSession::mutex() { refuse(); }
void MpiSession::poison() { refuse(); }

std::unique_ptr<Communicator> make_mpi_communicator(std::shared_ptr<MpiSession>, int, const WaitContext&) {
  refuse();
}

}  // namespace braid::comm
