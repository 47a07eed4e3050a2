// Ranks in processes of their own, found over gRPC; one is killed or stopped in the middle of all-reduces.
#include <gmock/gmock.h>

#include <memory>
#include <sstream>

#include "comm/rendezvous/grpc_rendezvous.h"
#include "tests/comm/child.h"
#include "tests/comm/transport/transport_fixture.h"
#include "tests/support/in_some_attempt.h"

namespace braid::comm {
namespace {

using testing::HasSubstr;

struct Failure {
  std::string code;
  int milliseconds = 0;
  std::string text;
};

/// Processes that all-reduce for ever, each operation with the deadline.
class Ranks {
 public:
  Ranks(int size, std::chrono::milliseconds deadline)
      : server_(RendezvousServer::start({.listen = "127.0.0.1:0"})) {
    for (int rank = 0; rank < size; ++rank)
      ranks_.push_back(std::make_unique<Child>(
          std::vector<std::string>{BRAID_COMM_PEER, "collective", server_->address(), std::to_string(rank),
                                   std::to_string(size), std::to_string(deadline.count())}));
    for (auto& rank : ranks_) EXPECT_EQ(rank->line(60s), "ready");
    std::this_thread::sleep_for(100ms);  // into the middle of an operation
  }

  Child& operator[](int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }

  Failure failure_of(int rank) {
    std::istringstream line((*this)[rank].line(60s));
    Failure failure;
    line >> failure.code >> failure.milliseconds;
    std::getline(line, failure.text);
    return failure;
  }

 private:
  std::unique_ptr<RendezvousServer> server_;
  std::vector<std::unique_ptr<Child>> ranks_;
};

class CollectiveFaultTest : public testing::TestWithParam<int> {};

TEST_P(CollectiveFaultTest, AKilledRankIsNamedAtOnceByAllOthers) {
  auto size = GetParam();
  Ranks ranks(size, 60s);
  ranks[1].signal(SIGKILL);
  for (int rank = 0; rank < size; ++rank) {
    if (rank == 1) continue;
    auto failure = ranks.failure_of(rank);
    EXPECT_EQ(failure.code, "Unavailable");
    EXPECT_THAT(failure.text, HasSubstr("rank 1 (127.0.0.1:"));
    EXPECT_THAT(failure.text, HasSubstr("is gone"));
    EXPECT_LT(failure.milliseconds, 20000) << "the deadline is a minute";
    EXPECT_EQ(ranks[rank].exit_code(), 138);
  }
}

TEST_P(CollectiveFaultTest, AStoppedRankIsNamedAfterTheDeadlineByAllOthers) {
  const int deadline_ms = 2000;
  in_some_attempt([&, size = GetParam()] {
    Ranks ranks(size, std::chrono::milliseconds(deadline_ms));
    ranks[1].signal(SIGSTOP);
    for (int rank = 0; rank < size; ++rank) {
      if (rank == 1) continue;
      auto failure = ranks.failure_of(rank);
      EXPECT_EQ(failure.code, "DeadlineExceeded");
      EXPECT_THAT(failure.text, HasSubstr("rank 1 (127.0.0.1:"));
      EXPECT_THAT(failure.text, HasSubstr("did not take part before the deadline"));
      EXPECT_GT(failure.milliseconds, deadline_ms / 2);
      EXPECT_LT(failure.milliseconds, deadline_ms + 900) << "it asks the others before the deadline";
      EXPECT_EQ(ranks[rank].exit_code(), 138);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, CollectiveFaultTest, testing::Values(2, 4),
                         testing::PrintToStringParamName());

TEST(TransportProcessTest, AKilledServerFailsThousandsOfCallsAtOnce) {
  Child server({BRAID_COMM_PEER, "serve"});
  auto channel = Channel::create(server.line(60s), {.connections = 2});
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
  EXPECT_TRUE(eventually([&] { return failed == kCalls; })) << failed << " failed, " << other << " did not";
}

TEST(TransportProcessTest, AStoppedServerMeetsTheDeadlineAndGoesOn) {
  in_some_attempt([] {
    Child server({BRAID_COMM_PEER, "serve"});
    auto channel = Channel::create(server.line(60s), {});
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
  });
}

}  // namespace
}  // namespace braid::comm
