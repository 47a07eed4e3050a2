// Communicators of one world after the other: 2 -> 1 -> 3 ranks, and a world that one does not reach.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <numeric>

#include "comm/make_communicator.h"
#include "comm/rendezvous/in_process.h"
#include "tests/support/message_of.h"

namespace braid::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

/// The sums over ranks of 1, 2, ... after each has made its communicator of that generation.
std::vector<float> sums(const std::shared_ptr<RendezvousStore>& store, std::uint64_t generation, int size) {
  std::vector<std::future<float>> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.push_back(std::async(std::launch::async, [&store, generation, size, rank] {
      auto rendezvous = make_in_process_rendezvous(store, {"job", generation});
      CommunicatorOptions options;
      options.backend = size == 1 ? Backend::Local : Backend::Ring;
      options.ring.rank = rank;
      options.ring.size = size;
      options.rendezvous = rendezvous.get();
      const auto wait = WaitContext::with_timeout(20s);
      auto communicator = make_communicator(options, wait);
      auto value = static_cast<float>(rank + 1);
      communicator->all_reduce(&value, &value, 1, DType::Float32, ReduceOp::Sum, StreamRef::host(), wait);
      return value;
    }));
  std::vector<float> found;
  for (auto& rank : ranks) found.push_back(rank.get());
  return found;
}

TEST(RebuiltRingTest, WorldsOfOtherSizesFollowEachOther) {
  auto store = std::make_shared<RendezvousStore>();
  EXPECT_EQ(sums(store, 1, 2), (std::vector<float>{3, 3}));
  EXPECT_EQ(sums(store, 2, 1), (std::vector<float>{1}));
  EXPECT_EQ(sums(store, 3, 3), (std::vector<float>{6, 6, 6}));
}

TEST(RebuiltRingTest, AWorkerOfAnEarlierWorldDoesNotGetIn) {
  auto store = std::make_shared<RendezvousStore>();
  EXPECT_EQ(sums(store, 5, 2), (std::vector<float>{3, 3}));
  auto late = make_in_process_rendezvous(store, {"job", 4});
  RingOptions options;
  options.rank = 1;
  options.size = 2;
  EXPECT_THAT(
      message_of<Error>([&] { make_ring_communicator(options, *late, WaitContext::with_timeout(20s)); }),
      HasSubstr("generation 4 of job 'job' is over"));
}

TEST(RebuiltRingTest, OneThatIsLostOnTheWayIsNamedAndTheNextWorldForms) {
  auto store = std::make_shared<RendezvousStore>();
  auto rendezvous = make_in_process_rendezvous(store, {"job", 1});
  RingOptions options;
  options.size = 2;
  EXPECT_THAT(message_of<Error>(
                  [&] { make_ring_communicator(options, *rendezvous, WaitContext::with_timeout(200ms)); }),
              HasSubstr("rank 1"));
  EXPECT_EQ(sums(store, 2, 3), (std::vector<float>{6, 6, 6}));
}

}  // namespace
}  // namespace braid::comm
