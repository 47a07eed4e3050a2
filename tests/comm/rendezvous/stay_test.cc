// A member that gives up its Stay calls in a process that serves nothing, where its channels are all that
// gRPC's threads live for. A program of its own: it forks before gRPC has begun.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/poll.h"
#include "comm/rendezvous/grpc_rendezvous.h"

namespace braid::comm {
namespace {

using namespace std::chrono_literals;

constexpr int kMembers = 6, kStays = 60;

/// A child: an exit code.
int stay_again_and_again(int address_pipe, int member) {
  std::array<char, 64> address{};
  if (read(address_pipe, address.data(), address.size()) != static_cast<ssize_t>(address.size())) return 2;
  const WaitContext wait = WaitContext::with_timeout(60s);
  const std::string name = "worker/" + std::to_string(member);
  for (int i = 0; i < kStays; ++i) {
    const auto rendezvous = make_grpc_rendezvous(address.data(), {"job", 1});
    rendezvous->add_member({name, 0, {}}, wait);
    const auto presence = rendezvous->stay(name);
    std::this_thread::sleep_for(std::chrono::milliseconds(i % 3));
  }
  return 0;
}

TEST(StayTest, EndsBeforeItsChannelDoes) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  std::vector<pid_t> children;
  for (int member = 0; member < kMembers; ++member) {
    children.push_back(fork());
    ASSERT_GE(children.back(), 0);
    if (children.back() == 0) std::exit(stay_again_and_again(ends[0], member));
  }
  const auto server = RendezvousServer::start({.listen = "127.0.0.1:0"});
  std::array<char, 64> address{};
  server->address().copy(address.data(), address.size() - 1);
  for (int member = 0; member < kMembers; ++member)
    ASSERT_EQ(write(ends[1], address.data(), address.size()), static_cast<ssize_t>(address.size()));
  const WaitContext wait = WaitContext::with_timeout(90s);
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_TRUE(poll([&] { return waitpid(child, &status, WNOHANG) == child; }, wait));
    EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace braid::comm
