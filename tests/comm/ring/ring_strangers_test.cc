// Strangers at the port of a forming ring: silent ones, slow ones, and ten thousand that say something else.
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "comm/rendezvous/in_process.h"
#include "comm/ring/newcomers.h"
#include "comm/ring/ring_communicator.h"
#include "comm/transport/socket.h"
#include "tests/comm/transport/raw_socket.h"
#include "tests/comm/transport/transport_fixture.h"

namespace braid::comm {
namespace {

using namespace std::chrono_literals;

class RingStrangersTest : public testing::TestWithParam<bool> {
 protected:
  RingStrangersTest() {
    if (GetParam()) options_.security.token = JobToken("a token of this test alone", "test");
    options_.size = 2;
    options_.listen = "127.0.0.1:" + std::to_string(listen_on("127.0.0.1:0").port);
  }

  /// Rank 0, which waits for the connections of rank 1 until meet().
  void begin() {
    auto rendezvous = make_in_process_rendezvous(store_, {"job", 1});
    rendezvous->set_text("ring/1/local", "", within(60s));
    rendezvous->set_text("ring/1/address", "127.0.0.1:1", within(60s));  // rank 0 never connects to it
    rank0_ = std::jthread([this] { all_reduce(options_); });
    for (const auto until = std::chrono::steady_clock::now() + 30s;
         !RawSocket(options_.listen).connected() && std::chrono::steady_clock::now() < until;)
      std::this_thread::sleep_for(5ms);
  }
  void meet() {
    RingOptions options = options_;
    options.rank = 1;
    options.listen = "127.0.0.1:0";
    all_reduce(options);
    rank0_.join();
    EXPECT_EQ(right_, 2);
  }
  const std::string& address() const { return options_.listen; }

 private:
  void all_reduce(const RingOptions& options) {
    auto rendezvous = make_in_process_rendezvous(store_, {"job", 1});
    auto ring = make_ring_communicator(options, *rendezvous, within(60s));
    float value = 1;
    ring->all_reduce(&value, &value, 1, DType::Float32, ReduceOp::Sum, StreamRef::host(), within(60s));
    if (value == 2) ++right_;
  }

  RingOptions options_;
  std::shared_ptr<RendezvousStore> store_ = std::make_shared<RendezvousStore>();
  std::jthread rank0_;
  std::atomic<int> right_{0};
};

TEST_P(RingStrangersTest, SilentOnesHoldNoRankUp) {
  begin();
  std::vector<std::unique_ptr<RawSocket>> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(std::make_unique<RawSocket>(address()));
  const auto started = std::chrono::steady_clock::now();
  meet();
  EXPECT_LT(std::chrono::steady_clock::now() - started, Newcomers::kHelloTime) << "they were waited for";
}

TEST_P(RingStrangersTest, MoreOfThemThanAreServedAtOnceHoldNoRankUpForLong) {
  begin();
  std::vector<std::unique_ptr<RawSocket>> silent;
  for (std::size_t i = 0; i < Newcomers::kMost + 100; ++i)
    silent.push_back(std::make_unique<RawSocket>(address()));
  meet();
}

TEST_P(RingStrangersTest, TenThousandLeaveItForming) {
  begin();
  std::minstd_rand random(11);
  const auto before = resident_bytes();
  for (int i = 0; i < 10'000; ++i) {
    RawSocket stranger(address());
    ASSERT_TRUE(stranger.connected());
    stranger.say(some_bytes(random));
  }
  meet();
  EXPECT_LT(resident_bytes(), before + (64U << 20));
}

INSTANTIATE_TEST_SUITE_P(Rings, RingStrangersTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "WithToken" : "Open"; });

}  // namespace
}  // namespace braid::comm
