// Rows on their way back to servers, and pulls that wait for them.
#include "worker/strategies/homed_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <stop_token>
#include <vector>

#include "base/error.h"
#include "tests/ps/cluster.h"

namespace braid::worker {
namespace {

using std::chrono::seconds;

/// A worker that has room for two rows of one table.
class HomedRowsTest : public ::testing::Test {
 protected:
  HomedRowsTest() {
    ps::TableSet set;
    set.sparse = {{"emb", 4, {InitKind::Uniform, -0.5F, 0.5F}, make_rng_key(9, "emb")}};
    set.consistency = ps::Consistency::Asp;
    set.cached = true;
    client_->create_tables(set, ps::soon());
    client_->wait_initialized(ps::soon());
    const ps::HomeRows::Options group{
        .tables = {0}, .slots = {2}, .layout = {.keys = 2, .swaps = 2, .width = 4, .steps = 2}};
    homed_ = std::make_shared<HomedRows>(client_, std::vector{group}, seconds(30));
    homed_->memory(0, nullptr);
  }

  std::future<ErrorPtr> begin(std::uint64_t step, const std::vector<std::int64_t>& keys,
                              std::stop_token stop = {}) {
    const std::vector<int> tables{0};
    const std::vector<std::int64_t> counts{std::ssize(keys)};
    const std::vector<ps::OrderedKeys> ordered{{tables, keys.data(), counts}};
    auto ended = std::make_shared<std::promise<ErrorPtr>>();
    homed_->begin(step, ordered, WaitContext::with_timeout(seconds(30), std::move(stop)));
    homed_->arrive(step, &vote_, [ended](ErrorPtr error) { ended->set_value(std::move(error)); });
    return ended->get_future();
  }
  /// What leaves is all `value`, or what the step before has left there.
  void swap(std::uint64_t step, float value) {
    const HomeBlock block = home_block(homed_->group(0).layout(), homed_->memory(0, nullptr), step);
    std::fill_n(block.out, 2 * 4, last_);
    last_ = value;
    homed_->leave(step, [](const ErrorPtr&) {});
  }
  /// The last row that comes with that step.
  float comes(std::uint64_t step) {
    const HomeBlock block = home_block(homed_->group(0).layout(), homed_->memory(0, nullptr), step);
    return block.in[(block.counts[1] - 1) * 4];
  }

  ps::Cluster cluster_{{}};
  std::shared_ptr<ps::PsClient> client_ = cluster_.client(0);
  std::shared_ptr<HomedRows> homed_;
  float vote_ = 0;
  float last_ = 0;
};

TEST_F(HomedRowsTest, ARowThatLeftInAStepBeforeComesWithItsSwap) {
  ASSERT_EQ(begin(0, {1, 2}).get(), nullptr);
  swap(0, 10);
  ASSERT_EQ(begin(1, {3, 4}).get(), nullptr);
  auto waiting = begin(2, {1, 3});
  EXPECT_EQ(waiting.wait_for(seconds(0)), std::future_status::timeout);
  swap(1, 20);
  EXPECT_EQ(waiting.get(), nullptr);
  EXPECT_EQ(comes(2), 10.0F);
}

TEST_F(HomedRowsTest, RowsOfTwoStepsMayBeUnderWay) {
  const std::vector<int> tables{0};
  const std::vector<std::int64_t> first{1, 2}, second{2, 3}, counts{2};
  homed_->begin(0, std::vector{ps::OrderedKeys{tables, first.data(), counts}}, ps::soon());
  homed_->begin(1, std::vector{ps::OrderedKeys{tables, second.data(), counts}}, ps::soon());
  for (const std::uint64_t step : {0, 1}) {
    std::promise<ErrorPtr> ended;
    homed_->arrive(step, &vote_, [&](ErrorPtr error) { ended.set_value(std::move(error)); });
    EXPECT_EQ(ended.get_future().get(), nullptr) << step;
    swap(step, 10);
  }
}

TEST_F(HomedRowsTest, AStepThatNeedsRowsOfOneThatFailedEndsWithItsOwn) {
  ASSERT_EQ(begin(0, {1, 2}).get(), nullptr);
  swap(0, 10);
  ASSERT_EQ(begin(1, {3, 4}).get(), nullptr);  // fails, and swaps nothing
  std::stop_source stop;
  auto waiting = begin(2, {1, 3}, stop.get_token());
  EXPECT_EQ(waiting.wait_for(seconds(0)), std::future_status::timeout);
  stop.request_stop();
  ASSERT_EQ(waiting.wait_for(seconds(20)), std::future_status::ready);
  EXPECT_EQ(waiting.get()->code, ErrorCode::Cancelled);

  auto late = begin(3, {1, 4}, stop.get_token());
  ASSERT_EQ(late.wait_for(seconds(20)), std::future_status::ready);
  EXPECT_EQ(late.get()->code, ErrorCode::Cancelled);
}

/// As behind a trial: what it has sent may arrive when the job's own steps run.
TEST_F(HomedRowsTest, WhatArrivesLateSaysNothingOfStepsBehindAClear) {
  ASSERT_EQ(begin(0, {1, 2}).get(), nullptr);
  swap(0, 10);
  ASSERT_EQ(begin(1, {3, 4}).get(), nullptr);
  swap(1, 20);
  homed_->clear();
  ASSERT_EQ(begin(0, {1, 2}).get(), nullptr);
  swap(0, 30);
  ASSERT_EQ(begin(1, {3, 4}).get(), nullptr);
  auto waiting = begin(2, {1, 3});
  EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout)
      << "step 1 has not swapped, whatever of it arrived before";
  swap(1, 40);
  EXPECT_EQ(waiting.get(), nullptr);
  EXPECT_EQ(comes(2), 30.0F);
}

TEST_F(HomedRowsTest, ServersHaveTheNewestOfARowThatLeftTwice) {
  ASSERT_EQ(begin(0, {1, 2}).get(), nullptr);
  swap(0, 10);
  ASSERT_EQ(begin(1, {3, 4}).get(), nullptr);
  swap(1, 20);
  ASSERT_EQ(begin(2, {1, 3}).get(), nullptr);
  swap(2, 30);
  ASSERT_EQ(begin(3, {4, 5}).get(), nullptr);
  swap(3, 40);
  homed_->flush(
      4, [](std::size_t, std::int32_t, std::uint32_t, float* out) { std::fill_n(out, 4, 50.0F); },
      ps::soon());
  homed_->clear();
  ASSERT_EQ(begin(0, {1, 3}).get(), nullptr);
  EXPECT_EQ(comes(0), 30.0F);
}

}  // namespace
}  // namespace braid::worker
