// Rows on their way back to servers, and pulls that wait for them.
#include "worker/strategies/homed_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
    homed_->begin(
        step, ordered, &vote_, [ended](ErrorPtr error) { ended->set_value(std::move(error)); },
        WaitContext::with_timeout(seconds(30), std::move(stop)));
    return ended->get_future();
  }
  void leave(std::uint64_t step) {
    homed_->leave(step, [](const ErrorPtr&) {});
  }

  ps::Cluster cluster_{{}};
  std::shared_ptr<ps::PsClient> client_ = cluster_.client(0);
  std::shared_ptr<HomedRows> homed_;
  float vote_ = 0;
};

TEST_F(HomedRowsTest, APullWaitsForItsRowsToArrive) {
  ASSERT_EQ(begin(0, {1, 2}).get(), nullptr);
  leave(0);
  ASSERT_EQ(begin(1, {3, 4}).get(), nullptr);
  auto waiting = begin(2, {1, 3});
  EXPECT_EQ(waiting.wait_for(seconds(0)), std::future_status::timeout);
  leave(1);
  EXPECT_EQ(waiting.get(), nullptr);
}

TEST_F(HomedRowsTest, APullThatWaitsForAStepThatFailedEndsWithItsOwn) {
  ASSERT_EQ(begin(0, {1, 2}).get(), nullptr);
  leave(0);
  ASSERT_EQ(begin(1, {3, 4}).get(), nullptr);  // fails, and sends nothing
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

}  // namespace
}  // namespace braid::worker
