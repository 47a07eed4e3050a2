// Ranks in processes of their own, found over gRPC; one is killed or stopped in the middle of all-reduces.
#include <gmock/gmock.h>

#include <memory>
#include <sstream>

#include "comm/rendezvous/grpc_rendezvous.h"
#include "tests/comm/child.h"
#include "tests/comm/transport_fixture.h"

namespace braid::comm {
namespace {

using testing::HasSubstr;

struct Failure {
  std::string code;
  int milliseconds = 0;
  std::string text;
};

class CollectiveFaultTest : public testing::TestWithParam<int> {
 protected:
  static constexpr int kDeadlineMilliseconds = 2000;

  void start(int size) {
    server_ = RendezvousServer::start({.listen = "127.0.0.1:0"});
    for (int rank = 0; rank < size; ++rank)
      ranks_.push_back(std::make_unique<Child>(
          std::vector<std::string>{BRAID_COMM_PEER, "collective", server_->address(), std::to_string(rank),
                                   std::to_string(size), std::to_string(kDeadlineMilliseconds)}));
    for (auto& rank : ranks_) ASSERT_EQ(rank->line(20s), "ready");
    std::this_thread::sleep_for(100ms);
  }

  Failure failure_of(int rank) {
    std::istringstream line(ranks_[rank]->line(std::chrono::milliseconds(kDeadlineMilliseconds) + 10s));
    Failure failure;
    line >> failure.code >> failure.milliseconds;
    std::getline(line, failure.text);
    return failure;
  }

  std::unique_ptr<RendezvousServer> server_;
  std::vector<std::unique_ptr<Child>> ranks_;
};

TEST_P(CollectiveFaultTest, AKilledRankIsNamedAtOnceByAllOthers) {
  auto size = GetParam();
  start(size);
  ranks_[1]->signal(SIGKILL);
  for (int rank = 0; rank < size; ++rank) {
    if (rank == 1) continue;
    auto failure = failure_of(rank);
    EXPECT_EQ(failure.code, "Unavailable");
    EXPECT_THAT(failure.text, HasSubstr("rank 1 (127.0.0.1:"));
    EXPECT_THAT(failure.text, HasSubstr("is gone"));
    EXPECT_LT(failure.milliseconds, kDeadlineMilliseconds);
    EXPECT_EQ(ranks_[rank]->exit_code(), 138);
  }
}

TEST_P(CollectiveFaultTest, AStoppedRankIsNamedAfterTheDeadlineByAllOthers) {
  auto size = GetParam();
  start(size);
  ranks_[1]->signal(SIGSTOP);
  for (int rank = 0; rank < size; ++rank) {
    if (rank == 1) continue;
    auto failure = failure_of(rank);
    EXPECT_EQ(failure.code, "DeadlineExceeded");
    EXPECT_THAT(failure.text, HasSubstr("rank 1 (127.0.0.1:"));
    EXPECT_THAT(failure.text, HasSubstr("did not take part before the deadline"));
    EXPECT_GT(failure.milliseconds, kDeadlineMilliseconds / 2);
    EXPECT_LT(failure.milliseconds, kDeadlineMilliseconds + 5000);
    EXPECT_EQ(ranks_[rank]->exit_code(), 138);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, CollectiveFaultTest, testing::Values(2, 4),
                         testing::PrintToStringParamName());

TEST(TransportProcessTest, AKilledServerFailsThousandsOfCallsAtOnce) {
  Child server({BRAID_COMM_PEER, "serve"});
  auto channel = Channel::create(server.line(10s), {.connections = 2});
  constexpr int kCalls = 3000;
  std::atomic<int> failed{0}, other{0};
  for (int i = 0; i < kCalls; ++i)
    channel->call_async(
        {1, to_bytes("x"), {}, nullptr}, nullptr,
        [&](CallResult result) {
          ++(result.error && result.error->code == ErrorCode::Unavailable ? failed : other);
        },
        within(60s));
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(failed + other, 0);
  server.signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return failed == kCalls; }, 20s))
      << failed << " failed, " << other << " did not";
}

TEST(TransportProcessTest, AStoppedServerMeetsTheDeadlineAndGoesOn) {
  Child server({BRAID_COMM_PEER, "serve"});
  auto channel = Channel::create(server.line(10s), {});
  server.signal(SIGSTOP);
  auto data = pattern(32 << 20, 0);  // more than the kernel's buffers take
  auto started = std::chrono::steady_clock::now();
  EXPECT_THAT(error_of<DeadlineExceeded>([&] {
                channel->call({1, {}, {data}, nullptr}, nullptr, within(300ms));
              }),
              HasSubstr(channel->address()));
  EXPECT_LT(std::chrono::steady_clock::now() - started, 5s);
  server.signal(SIGCONT);
  EXPECT_THAT(error_of<DeadlineExceeded>([&] {
                channel->call({1, {}, {}, nullptr}, nullptr, within(300ms));
              }),
              HasSubstr("no answer before the deadline"));
}

}  // namespace
}  // namespace braid::comm
