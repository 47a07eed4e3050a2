// The conformance suite on MPI's ranks: run by mpirun (see CMakeLists.txt), every rank runs all of it and any
// failure fails the run. Not GoogleTest cases one by one, since ranks must stay in step.
//
//   comm_mpi_test operations | rendezvous | factory
//     End as MPI programs do.
//   comm_mpi_test wrong_use | gives_up | absence
//     End without MPI_Finalize, as a job does that lost a rank: mpirun reports that, so their success is in
//     their output.
#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "comm/make_communicator.h"
#include "comm/mpi/mpi_communicator.h"
#include "comm/rendezvous/mpi_rendezvous.h"
#include "tests/comm/communicator_conformance.h"

namespace braid::comm {
namespace {

using conformance::soon;

std::string part = "operations";
std::shared_ptr<MpiSession> session;

int ranks = 1;

/// mpirun kills the others when the first rank ends without MPI_Finalize. MPI cannot be asked any more who is
/// done: each rank adds a byte to a file that is named after mpirun.
void wait_for_the_others() {
  const auto file = std::filesystem::temp_directory_path() / fmt::format("braid-mpi-test-{}", ::getppid());
  const int fd = ::open(file.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
  if (fd < 0 || ::write(fd, "x", 1) != 1) return;
  struct stat status {};
  for (const auto wait = soon(); !wait.expired(); std::this_thread::sleep_for(std::chrono::milliseconds(10)))
    if (::fstat(fd, &status) != 0 || status.st_size >= ranks) break;
  ::unlink(file.c_str());
  ::close(fd);
  std::this_thread::sleep_for(std::chrono::seconds(1));  // mpirun passes on what they have printed
}

bool breaks_mpi() { return part == "wrong_use" || part == "gives_up" || part == "absence"; }

class MpiTest : public testing::Test {
 protected:
  void SetUp() override {
    session = MpiSession::start();
    ranks = session->size();
    const int members = part == "members" ? ranks - 1 : ranks;
    if (session->rank() < members) comm_ = make_mpi_communicator(session, members, soon());
  }
  std::unique_ptr<Communicator> comm_;
};

TEST_F(MpiTest, Run) {
  if (!comm_) return;  // no member
  auto rank = comm_->rank();
  if (part == "operations" || part == "members") {
    EXPECT_EQ(comm_->size(), part == "members" ? ranks - 1 : ranks);
    conformance::check_operations(*comm_);
  } else if (part == "wrong_use") {
    conformance::check_wrong_use(*comm_, conformance::wrong_uses().front());
  } else if (part == "gives_up") {
    // One rank's wrong use ends the operation of the others.
    if (rank == 0) return conformance::check_wrong_use(*comm_, conformance::wrong_uses().front());
    auto text = error_of<Unavailable>([&] { comm_->barrier(soon()); });
    EXPECT_NE(text.find("rank 0 ("), std::string::npos) << text;
    EXPECT_NE(text.find("gave up"), std::string::npos) << text;
  } else if (part == "absence") {
    conformance::check_absence(*comm_);
  } else if (part == "rendezvous") {
    auto rendezvous = make_mpi_rendezvous(*session, {"job", 1}, {}, soon());
    rendezvous->set_text(std::to_string(rank), fmt::format("value {}", rank), soon());
    for (int other = 0; other < comm_->size(); ++other)
      EXPECT_EQ(rendezvous->get_text(std::to_string(other), soon()), fmt::format("value {}", other));
    rendezvous->barrier("end", rank, comm_->size(), soon());
    comm_->barrier(soon());
  } else if (part == "factory") {
    CommunicatorOptions options;
    options.backend = Backend::Mpi;
    options.ring.rank = rank;
    options.ring.size = comm_->size();
    make_communicator(options, soon())->barrier(soon());
    options.ring.size = 17;
    auto text = error_of<InvalidArgument>([&] { make_communicator(options, soon()); });
    EXPECT_NE(text.find("of 17, and MPI says"), std::string::npos) << text;
  } else {
    FAIL() << "unknown part " << part;
  }
}

}  // namespace
}  // namespace braid::comm

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1) braid::comm::part = argv[1];
  auto result = RUN_ALL_TESTS();
  std::fflush(nullptr);
  if (braid::comm::breaks_mpi()) {
    braid::comm::wait_for_the_others();
    _exit(result);
  }
  braid::comm::session.reset();
  return result;
}
