// Pulls ahead and their repair, without a network.
#include <gmock/gmock.h>

#include <algorithm>
#include <bit>

#include "tests/ps/server/core_fixture.h"

namespace braid::ps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RepairTest : public CoreFixture {
 protected:
  PullJob rows_job(int worker, std::uint64_t version, PullKind kind, std::uint64_t number,
                   const std::vector<std::int64_t>& keys) {
    auto its = std::make_shared<std::vector<std::int64_t>>(keys);
    PullJob job;
    job.sender = sender(worker);
    job.min_version = version;
    job.kind = kind;
    job.ahead = number;
    if (!keys.empty()) job.sparse = {{0, 2, *its, nullptr}};
    job.hold = its;
    return job;
  }
  std::future<PullAnswer> start(PullJob job) {
    auto answer = std::make_shared<std::promise<PullAnswer>>();
    job.done = [answer](PullAnswer a) { answer->set_value(std::move(a)); };
    core_->pull(std::move(job));
    return answer->get_future();
  }
  std::vector<float> ahead(int worker, std::uint64_t number, const std::vector<std::int64_t>& keys) {
    const PullAnswer answer = start(rows_job(worker, 0, PullKind::Ahead, number, keys)).get();
    if (answer.error) throw_error(*answer.error);
    return {answer.pieces[0].begin(), answer.pieces[0].end()};
  }
  std::future<PullAnswer> repair(int worker, std::uint64_t version, std::uint64_t number) {
    return start(rows_job(worker, version, PullKind::Repair, number, {}));
  }
  void push_rows(int worker, std::uint64_t step, const std::vector<std::int64_t>& keys, float value) {
    const std::vector<float> rows(keys.size() * 2, value);
    PushJob job = push_job(worker, step, 1.0F);
    job.sparse = {{0, 2, keys, rows.data()}};
    auto hold = std::make_shared<std::pair<std::vector<std::int64_t>, std::vector<float>>>(keys, rows);
    job.sparse[0].keys = hold->first;
    job.sparse[0].rows = hold->second.data();
    const auto dense = job.hold;
    job.hold = std::make_shared<std::pair<std::shared_ptr<const void>, decltype(hold)>>(dense, hold);
    ASSERT_EQ(push(std::move(job)).result, PushResult::Applied);
  }
  /// Of an answer without dense values: the number of a row and its first value.
  static std::vector<std::pair<std::uint32_t, float>> repaired(const PullAnswer& answer) {
    std::vector<std::uint32_t> where;
    std::vector<float> rows;
    for (const auto& piece : answer.pieces)
      for (const float value : piece)
        if (where.size() < answer.repaired)
          where.push_back(std::bit_cast<std::uint32_t>(value));
        else
          rows.push_back(value);
    std::vector<std::pair<std::uint32_t, float>> out;
    for (std::size_t i = 0; i < where.size(); ++i) out.emplace_back(where[i], rows[2 * i]);
    std::sort(out.begin(), out.end());
    return out;
  }
};

TEST_F(RepairTest, GivesTheRowsThatTheRoundHasTouchedAndNoOthers) {
  start_core(2, Consistency::Bsp);
  start_job();
  push_rows(0, 0, {5, 6}, 1.0F);
  EXPECT_EQ(ahead(0, 9, {4, 5, 6, 7}), std::vector<float>(8, 1.0F)) << "the round is open";
  EXPECT_EQ(count(Count::RowsMade), 0U) << "a pull ahead makes no rows";
  auto parked = repair(0, 1, 9);
  EXPECT_EQ(parked.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  push_rows(1, 0, {6, 8}, 1.0F);
  const PullAnswer answer = parked.get();
  ASSERT_EQ(answer.error, nullptr);
  EXPECT_THAT(repaired(answer), ElementsAre(std::pair(1U, 0.0F), std::pair(2U, -1.0F)));
  EXPECT_EQ(count(Count::RowsMade), 5U)
      << "5, 6, 8 by the round, 4 and 7 by the repair, as a pull makes them";
  EXPECT_EQ(count(Count::RowsRepaired), 2U);
}

/// Rows that workers keep: who has not changed a row last, or not alone, gets it again.
class ChangedTest : public RepairTest {
 protected:
  void begin(int workers, Consistency consistency = Consistency::Bsp) {
    set_.cached = true;
    start_core(workers, consistency);
    start_job();
  }
  /// `known`: 1 + the step in which the worker changed each of the keys last.
  std::future<PullAnswer> changed(int worker, std::uint64_t version, const std::vector<std::int64_t>& keys,
                                  const std::vector<std::uint32_t>& known) {
    PullJob job = rows_job(worker, version, PullKind::Changed, 0, keys);
    job.slots = true;
    auto its =
        std::make_shared<std::pair<std::shared_ptr<const void>, std::vector<std::uint32_t>>>(job.hold, known);
    job.sparse[0].known = its->second;
    job.hold = its;
    return start(std::move(job));
  }
};

TEST_F(ChangedTest, RowsThatOthersHaveChangedInThatRoundOrSinceAreSent) {
  begin(2);
  push_rows(0, 0, {5, 6, 7}, 1.0F);
  auto parked = changed(0, 1, {5, 6, 7}, {1, 1, 1});
  EXPECT_EQ(parked.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout) << "of round 0";
  push_rows(1, 0, {6, 8}, 1.0F);
  EXPECT_THAT(repaired(parked.get()), ElementsAre(std::pair(1U, -1.0F))) << "both have changed 6";
  push_rows(0, 1, {5}, 1.0F);
  push_rows(1, 1, {7}, 1.0F);
  EXPECT_THAT(repaired(changed(0, 2, {5, 7}, {2, 1}).get()), ElementsAre(std::pair(1U, -1.0F)));
  EXPECT_THAT(repaired(changed(1, 2, {5, 6, 7, 8}, {1, 1, 2, 1}).get()),
              ElementsAre(std::pair(0U, -1.0F), std::pair(1U, -1.0F)))
      << "7 and 8 are its own";
  EXPECT_EQ(count(Count::RowsChanged), 4U);
  EXPECT_EQ(count(Count::RowsPulled), 0U);
}

TEST_F(ChangedTest, WhatTheWorkerHasNeverChangedIsSentAndMadeAsAPullMakesIt) {
  begin(1);
  EXPECT_THAT(repaired(changed(0, 0, {3, 4}, {1, 9}).get()),
              ElementsAre(std::pair(0U, 1.0F), std::pair(1U, 1.0F)));
  EXPECT_EQ(count(Count::RowsMade), 2U);
}

TEST_F(ChangedTest, WithoutRoundsOrWritersItIsRefused) {
  begin(1, Consistency::Asp);
  EXPECT_THAT(changed(0, 0, {3}, {1}).get().error->message, HasSubstr("of a worker and of BSP"));
  set_.cached = false;
  start_core(1, Consistency::Bsp);
  start_job();
  EXPECT_THAT(changed(0, 0, {3}, {1}).get().error->message, HasSubstr("not declared as cached"));
}

TEST_F(RepairTest, ThatIsSentAgainGivesAtLeastTheSameRows) {
  start_core(1, Consistency::Bsp);
  start_job();
  ahead(0, 1, {1, 2});
  push_rows(0, 0, {2}, 3.0F);
  EXPECT_THAT(repaired(repair(0, 1, 1).get()), ElementsAre(std::pair(1U, -2.0F)));
  const auto again = repaired(repair(0, 1, 1).get());
  EXPECT_THAT(again, testing::Contains(std::pair(1U, -2.0F)));
}

TEST_F(RepairTest, OfSeveralRoundsGivesRowsOfAllOfThem) {
  start_core(1, Consistency::Bsp);
  start_job();
  for (std::uint64_t step = 0; step < 3; ++step) push_rows(0, step, {1, 2, 3, 4}, 0.0F);
  pull_async(0, 3).get();
  ahead(0, 1, {1, 2, 3, 4});
  push_rows(0, 3, {1}, 1.0F);
  push_rows(0, 4, {3}, 2.0F);
  EXPECT_THAT(repaired(repair(0, 5, 1).get()), ElementsAre(std::pair(0U, 0.0F), std::pair(2U, -1.0F)));
}

TEST_F(RepairTest, OfAnUnknownPullSaysSoAtOnce) {
  start_core(2, Consistency::Bsp);
  start_job();
  const PullAnswer answer = repair(0, 7, 3).get();
  EXPECT_EQ(answer.error, nullptr);
  EXPECT_TRUE(answer.unknown);
  ahead(0, 3, {1});
  EXPECT_TRUE(repair(1, 0, 3).get().unknown) << "another worker's";
  EXPECT_FALSE(repair(0, 0, 3).get().unknown);
  for (std::uint64_t number = 4; number < 8; ++number) ahead(0, number, {1});
  EXPECT_TRUE(repair(0, 0, 3).get().unknown) << "the newest four are kept";
  EXPECT_FALSE(repair(0, 0, 4).get().unknown);
}

TEST_F(RepairTest, ThatWaitsForALostWorkerNamesIt) {
  start_core(2, Consistency::Bsp);
  start_job();
  ahead(0, 1, {1, 2});
  push_rows(0, 0, {1}, 1.0F);
  auto parked = repair(0, 1, 1);
  lose(1);
  core_->tick(Clock::now() + 2 * kHeartbeatTimeout);
  const PullAnswer answer = parked.get();
  ASSERT_NE(answer.error, nullptr);
  EXPECT_EQ(answer.error->code, ErrorCode::Unavailable);
  EXPECT_THAT(answer.error->message, HasSubstr("worker 1"));
}

TEST_F(RepairTest, WithoutRoundsAPullAheadIsAPull) {
  start_core(1, Consistency::Asp);
  start_job();
  ahead(0, 1, {1, 2, 3});
  EXPECT_EQ(count(Count::RowsMade), 3U);
}

}  // namespace
}  // namespace braid::ps
