// The rendezvous sees at once when the process of a member that stays has ended, and members see it of the
// host.
#include <gmock/gmock.h>

#include <thread>

#include "comm/rendezvous/grpc_rendezvous.h"
#include "tests/comm/child.h"
#include "tests/comm/transport/transport_fixture.h"

namespace braid::comm {
namespace {

class PresenceTest : public testing::Test {
 protected:
  /// Of the only member.
  std::optional<std::chrono::milliseconds> since_gone() {
    return rendezvous_->members(within(60s)).at(0).since_gone;
  }

  /// The member's call may come behind what it said after it.
  bool one_stays() {
    return eventually([&] { return server_->store()->stays() == 1; });
  }

  const std::unique_ptr<RendezvousServer> server_ = RendezvousServer::start({.listen = "127.0.0.1:0"});
  const std::unique_ptr<Rendezvous> rendezvous_ = make_grpc_rendezvous(server_->address(), {"job", 1});
};

TEST_F(PresenceTest, AProcessThatIsKilledIsGone) {
  Child member({BRAID_COMM_PEER, "stay", server_->address(), "worker/1"});
  ASSERT_EQ(member.line(60s), "ready");
  ASSERT_TRUE(one_stays());
  EXPECT_EQ(since_gone(), std::nullopt);
  member.signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return since_gone().has_value(); }));
  // Another process of that name takes its place.
  Child next({BRAID_COMM_PEER, "stay", server_->address(), "worker/1"});
  ASSERT_EQ(next.line(60s), "ready");
  ASSERT_TRUE(one_stays());
  EXPECT_EQ(since_gone(), std::nullopt);
}

TEST_F(PresenceTest, AProcessThatStandsStillIsNotGone) {
  Child member({BRAID_COMM_PEER, "stay", server_->address(), "worker/1"});
  ASSERT_EQ(member.line(60s), "ready");
  ASSERT_TRUE(one_stays());
  member.signal(SIGSTOP);
  std::this_thread::sleep_for(1s);
  EXPECT_EQ(since_gone(), std::nullopt);
  member.signal(SIGCONT);
}

TEST_F(PresenceTest, AHostThatIsKilledIsLost) {
  Child host({BRAID_COMM_PEER, "host"});
  const std::string address = host.line(60s);
  const auto rendezvous = make_grpc_rendezvous(address, {"job", 1});
  rendezvous->add_member({"worker/1", 7, {}}, within(60s));
  const auto presence = rendezvous->stay("worker/1");
  rendezvous->heartbeat("worker/1", within(60s));
  EXPECT_EQ(presence->state(), Presence::State::Held);
  host.signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return presence->state() == Presence::State::Lost; }));
}

TEST_F(PresenceTest, AHostThatStopsInOrderIsNotLost) {
  rendezvous_->add_member({"worker/1", 7, {}}, within(60s));
  const auto presence = rendezvous_->stay("worker/1");
  rendezvous_->heartbeat("worker/1", within(60s));
  server_->stop(within(60s));
  EXPECT_TRUE(eventually([&] { return presence->state() == Presence::State::Ended; }));
}

}  // namespace
}  // namespace braid::comm
