#include "ps/server/rounds.h"

#include <gtest/gtest.h>

namespace braid::ps {
namespace {

Contribution from(std::int32_t worker, float learning_rate = 0.1F) {
  auto push = std::make_shared<PushJob>();
  push->sender.worker = worker;
  push->params.learning_rate = learning_rate;
  return {worker, push, 0};
}

constexpr TableId kTable{0};
const auto kEverybody = [](int) { return true; };

TEST(RoundLedgerTest, ARoundIsReadyWhenAllContributedAndInWorkerOrder) {
  RoundLedger ledger(1, 0);
  ledger.contribute(kTable, 0, from(2));
  ledger.contribute(kTable, 0, from(0));
  EXPECT_TRUE(ledger.take_ready(kTable, 3, kEverybody).empty());
  EXPECT_EQ(ledger.missing(kTable, 3, kEverybody), std::vector<int>{1});
  ledger.contribute(kTable, 0, from(1));
  const auto ready = ledger.take_ready(kTable, 3, kEverybody);
  ASSERT_EQ(ready.size(), 1U);
  for (std::size_t w = 0; w < 3; ++w) EXPECT_EQ(ready[0].contributions[w].worker, static_cast<int>(w));
  EXPECT_EQ(ledger.version(kTable), 0U);
  ledger.applied(kTable, 0);
  EXPECT_EQ(ledger.version(kTable), 1U);
}

TEST(RoundLedgerTest, LaterRoundsWaitForEarlierOnes) {
  RoundLedger ledger(1, 10);
  for (int w : {0, 1}) ledger.contribute(kTable, 11, from(w));
  EXPECT_TRUE(ledger.take_ready(kTable, 2, kEverybody).empty());
  for (int w : {0, 1}) ledger.contribute(kTable, 10, from(w));
  const auto ready = ledger.take_ready(kTable, 2, kEverybody);
  ASSERT_EQ(ready.size(), 2U);
  EXPECT_EQ(ready[0].round, 10U);
  EXPECT_EQ(ready[1].round, 11U);
  EXPECT_TRUE(ledger.over(kTable, 11));
  EXPECT_FALSE(ledger.settled(12));
  ledger.applied(kTable, 10);
  ledger.applied(kTable, 11);
  EXPECT_TRUE(ledger.settled(12));
}

TEST(RoundLedgerTest, WhoLeftIsNotWaitedForButCountsWhenThere) {
  RoundLedger ledger(1, 0);
  ledger.contribute(kTable, 0, from(0));
  ledger.contribute(kTable, 0, from(1));
  ledger.contribute(kTable, 1, from(0));
  const auto ready = ledger.take_ready(kTable, 2, [](int worker) { return worker != 1; });
  ASSERT_EQ(ready.size(), 2U);
  EXPECT_EQ(ready[0].contributions.size(), 2U);
  EXPECT_EQ(ready[1].contributions.size(), 1U);
  EXPECT_TRUE(ledger.take_ready(kTable, 2, [](int) { return false; }).empty())
      << "nobody contributed to round 2";
}

TEST(RoundLedgerTest, RefusesDifferentParametersASecondPushAndTheFarFuture) {
  RoundLedger ledger(1, 0);
  ledger.contribute(kTable, 0, from(0, 0.1F));
  EXPECT_EQ(ledger.refusal(kTable, 0, *from(1, 0.1F).push), "");
  EXPECT_EQ(
      ledger.refusal(kTable, 0, *from(1, 0.2F).push),
      "round 0: worker 1 has (learning rate 0.2, gradient scale 1, step 0), worker 0 has (learning rate 0.1, "
      "gradient scale 1, step 0)");
  EXPECT_EQ(ledger.refusal(kTable, 0, *from(0, 0.1F).push),
            "worker 0 has pushed this table in round 0 already");
  EXPECT_EQ(ledger.refusal(kTable, 64, *from(0).push), "round 64 is too far ahead: 0 rounds are applied");
}

}  // namespace
}  // namespace braid::ps
