// Who is missing when NCCL's kernels wait: no GPU is needed to find out.
#include "comm/nccl/peer_progress.h"

#include <gmock/gmock.h>

#include "comm/rendezvous/in_process.h"

namespace braid::comm {
namespace {

using testing::HasSubstr;
using testing::Not;

class PeerProgressTest : public testing::Test {
 protected:
  PeerProgress rank(int number) {
    return {*rendezvous_, "test", number, {"rank 0 (a)", "rank 1 (b)", "rank 2 (c)"}};
  }

  const std::shared_ptr<RendezvousStore> store_ = std::make_shared<RendezvousStore>();
  std::unique_ptr<Rendezvous> rendezvous_ = make_in_process_rendezvous(store_, {"job", 1});
};

TEST_F(PeerProgressTest, RanksThatAreBehindAreNamedWithWhatTheyDidLast) {
  PeerProgress zero = rank(0), one = rank(1), two = rank(2);
  for (PeerProgress* each : {&zero, &one, &two}) each->begin_collective("broadcast");
  one.begin_collective("all_reduce");
  two.begin_collective("all_reduce");
  zero.post();
  two.post();
  const std::string text = one.who_is_missing();
  EXPECT_THAT(text, HasSubstr("rank 0 (a) [step 0, collective #1, broadcast] did not take part"));
  EXPECT_THAT(text, Not(HasSubstr("rank 2")));
}

TEST_F(PeerProgressTest, StepsCountBeforeCollectives) {
  PeerProgress zero = rank(0), one = rank(1), two = rank(2);
  zero.begin_collective("barrier");
  zero.post();
  one.begin_step(7);
  two.begin_step(7);
  two.post();
  EXPECT_THAT(one.who_is_missing(), testing::StartsWith("rank 0 (a)"));
}

TEST_F(PeerProgressTest, ARankThatIsNotHeardOfIsNamedBeforeThoseBehind) {
  PeerProgress zero = rank(0), one = rank(1);
  zero.post();
  one.begin_collective("all_reduce");
  EXPECT_EQ(one.who_is_missing(), "rank 2 (c) did not take part and is not heard of");
}

TEST_F(PeerProgressTest, NobodyIsBlamedWhenAllAreThere) {
  PeerProgress zero = rank(0), one = rank(1), two = rank(2);
  for (PeerProgress* each : {&zero, &one, &two}) {
    each->begin_collective("all_reduce");
    each->post();
  }
  EXPECT_THAT(one.who_is_missing(), HasSubstr("all ranks are in it"));
}

TEST_F(PeerProgressTest, ARankThatGivesUpIsHeardOfByTheOthers) {
  PeerProgress zero = rank(0), one = rank(1);
  EXPECT_EQ(zero.who_is_lost(), std::nullopt);
  one.give_up("out of memory");
  EXPECT_EQ(zero.who_is_lost(), "rank 1 (b) gave up: out of memory");
  EXPECT_EQ(one.who_is_lost(), std::nullopt);
}

TEST_F(PeerProgressTest, ARankWhoseConnectionBreaksIsGoneASecondLater) {
  PeerProgress zero = rank(0), one = rank(1);
  one.post();
  const auto broke = std::chrono::steady_clock::now();
  store_->cancel(store_->stay({"job", 1}, "test/rank 1", [](const ErrorPtr&) {}));
  std::optional<std::string> lost;
  while (!lost && std::chrono::steady_clock::now() - broke < std::chrono::seconds(20)) {
    lost = zero.who_is_lost();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(lost, "rank 1 (b) is gone: its connection to the rendezvous has broken");
  EXPECT_GE(std::chrono::steady_clock::now() - broke, std::chrono::seconds(1));
  one.post();  // it stays again
  EXPECT_EQ(zero.who_is_lost(), std::nullopt);
}

TEST_F(PeerProgressTest, ARankThatLeavesInOrderIsNotLost) {
  PeerProgress zero = rank(0);
  {
    PeerProgress one = rank(1);
    one.post();
  }
  EXPECT_EQ(rendezvous_->members(WaitContext::with_timeout(std::chrono::seconds(1))).at(0).since_gone,
            std::nullopt);
  EXPECT_EQ(zero.who_is_lost(), std::nullopt);
}

}  // namespace
}  // namespace braid::comm
