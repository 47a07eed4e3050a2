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

  std::unique_ptr<Rendezvous> rendezvous_ =
      make_in_process_rendezvous(std::make_shared<RendezvousStore>(), {"job", 1});
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
  EXPECT_EQ(zero.who_gave_up(), std::nullopt);
  one.give_up("out of memory");
  EXPECT_EQ(zero.who_gave_up(), "rank 1 (b) gave up: out of memory");
  EXPECT_EQ(one.who_gave_up(), std::nullopt);
}

}  // namespace
}  // namespace braid::comm
