#include "engine/input/stream/stream_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "base/error.h"

namespace braid {
namespace {

std::vector<DataBlock> blocks_of(const std::vector<std::int64_t>& rows) {
  std::vector<DataBlock> blocks;
  for (const std::int64_t each : rows) blocks.push_back({0, each, 0});
  return blocks;
}

/// The rows of a batch, numbered through the blocks.
std::vector<std::int64_t> batch_of(const BatchPlan& plan, const std::vector<std::int64_t>& block_rows,
                                   std::uint64_t ticket, RowPart part) {
  std::vector<std::int64_t> begins(block_rows.size());
  std::exclusive_scan(block_rows.begin(), block_rows.end(), begins.begin(), std::int64_t{0});
  std::vector<WindowRun> runs;
  plan.add_runs(ticket, part, runs);
  std::vector<std::int64_t> rows;
  for (const WindowRun& run : runs) {
    const auto [first, last] = plan.tickets_of(run.window);
    EXPECT_LE(first, ticket);
    EXPECT_GE(last, ticket);
    std::vector<std::int64_t> window;
    for (const BlockPart& piece : plan.parts_of(run.window))
      for (std::int64_t r = 0; r < piece.rows; ++r) window.push_back(begins[piece.block] + piece.first + r);
    const auto order = plan.order_of(run.window);
    EXPECT_EQ(order.size(), window.size());
    for (std::int64_t r = run.first; r < run.first + run.rows; ++r)
      rows.push_back(window[order[static_cast<std::size_t>(r)]]);
  }
  EXPECT_EQ(std::ssize(rows), part.rows);
  return rows;
}

const std::vector<std::int64_t> kUneven{7, 1, 0, 30, 2, 2, 11, 1, 1, 45, 3, 5, 9, 4, 4, 4, 17, 1, 8, 6};

TEST(StreamPlanTest, EachRowComesOnceAnEpochAndEpochsDiffer) {
  const std::int64_t rows = std::accumulate(kUneven.begin(), kUneven.end(), std::int64_t{0});
  for (const int shards : {1, 3, 4, 16})
    for (const std::int64_t window : {1, 2, 100}) {
      const BatchPlan plan(blocks_of(kUneven),
                           {.global_batch = 9, .seed = 5, .shards = shards, .window_blocks = window});
      const auto per_epoch = static_cast<std::uint64_t>(plan.batches_per_epoch());
      EXPECT_EQ(per_epoch, static_cast<std::uint64_t>(rows / 9));
      std::vector<std::vector<std::int64_t>> epochs(2);
      for (std::uint64_t t = 0; t < 2 * per_epoch; ++t)
        for (const std::int64_t row : batch_of(plan, kUneven, t, {0, 9}))
          epochs[t / per_epoch].push_back(row);
      for (const auto& epoch : epochs) EXPECT_EQ(std::set(epoch.begin(), epoch.end()).size(), epoch.size());
      EXPECT_NE(epochs[0], epochs[1]);
    }
}

TEST(StreamPlanTest, CarriedRemaindersLeaveNoRowOut) {
  const std::int64_t rows = std::accumulate(kUneven.begin(), kUneven.end(), std::int64_t{0});
  for (const std::int64_t batch : {7, 64, 200, 400}) {
    const BatchPlan plan(
        blocks_of(kUneven),
        {.global_batch = batch, .carry_remainder = true, .seed = 5, .shards = 4, .window_blocks = 2});
    std::map<std::int64_t, int> seen;
    // As many batches as end with an epoch's last row.
    for (std::int64_t t = 0; t < rows; ++t)
      for (const std::int64_t row : batch_of(plan, kUneven, static_cast<std::uint64_t>(t), {0, batch}))
        ++seen[row];
    EXPECT_EQ(std::ssize(seen), rows);
    for (const auto& [row, count] : seen) EXPECT_EQ(count, batch) << row;
  }
}

TEST(StreamPlanTest, WorkersOfAnyNumberShareTheSameGlobalBatches) {
  for (const bool carries : {false, true})
    for (const int world : {1, 2, 3, 4, 9}) {
      const BatchPlan plan(
          blocks_of(kUneven),
          {.global_batch = 10, .carry_remainder = carries, .seed = 5, .shards = 4, .window_blocks = 2});
      for (std::uint64_t t = 0; t < 50; ++t) {
        std::vector<std::int64_t> together;
        for (int rank = 0; rank < world; ++rank)
          for (const std::int64_t row : batch_of(plan, kUneven, t, row_part(10, rank, world)))
            together.push_back(row);
        EXPECT_EQ(together, batch_of(plan, kUneven, t, {0, 10}));
      }
    }
}

TEST(StreamPlanTest, WorkersReadBlocksOfTheirOwnShards) {
  const std::vector<std::int64_t> rows(64, 10);
  const BatchPlan plan(blocks_of(rows), {.global_batch = 16, .seed = 1, .shards = 4, .window_blocks = 1});
  std::vector<std::set<std::size_t>> read(4);
  for (std::uint64_t t = 0; t < static_cast<std::uint64_t>(plan.batches_per_epoch()); ++t)
    for (int rank = 0; rank < 4; ++rank) {
      std::vector<WindowRun> runs;
      plan.add_runs(t, row_part(16, rank, 4), runs);
      for (const WindowRun& run : runs)
        for (const BlockPart& part : plan.parts_of(run.window))
          read[static_cast<std::size_t>(rank)].insert(part.block);
    }
  for (const auto& blocks : read) EXPECT_LE(blocks.size(), 17U) << "a quarter, and one where parts meet";
}

TEST(StreamPlanTest, WithoutShuffleRowsComeInTheFilesOrder) {
  const BatchPlan plan(blocks_of(kUneven),
                       {.global_batch = 10, .shuffle = false, .shards = 8, .window_blocks = 2});
  std::int64_t next = 0;
  for (std::uint64_t t = 0; t < static_cast<std::uint64_t>(plan.batches_per_epoch()); ++t)
    for (const std::int64_t row : batch_of(plan, kUneven, t, {0, 10})) EXPECT_EQ(row, next++);
}

/// Of a window as large as the data, the place of a row in an epoch is as any other: the mean place of each
/// row over many epochs is the middle, within what chance allows.
TEST(StreamPlanTest, AWindowOfAllBlocksPermutesTheWholeEpoch) {
  const std::vector<std::int64_t> rows(8, 8);
  const BatchPlan plan(blocks_of(rows), {.global_batch = 1, .seed = 3, .shards = 1, .window_blocks = 8});
  std::vector<double> mean(64);
  constexpr int kEpochs = 400;
  for (std::uint64_t t = 0; t < std::uint64_t{64} * kEpochs; ++t)
    mean[static_cast<std::size_t>(batch_of(plan, rows, t, {0, 1})[0])] +=
        static_cast<double>(t % 64) / kEpochs;
  // The deviation of a mean of 400 uniform places is 18.5 / 20.
  for (const double place : mean) EXPECT_NEAR(place, 31.5, 4.5);
}

TEST(StreamPlanTest, MoreShardsThanRowsOfABatch) {
  const std::vector<std::int64_t> rows(10, 3);
  const BatchPlan plan(blocks_of(rows), {.global_batch = 4, .seed = 3, .shards = 64, .window_blocks = 1});
  EXPECT_EQ(plan.options().shards, 4);
  EXPECT_EQ(batch_of(plan, rows, 3, {0, 4}).size(), 4U);
}

TEST(StreamPlanTest, RefusesWhatFillsNoBatch) {
  EXPECT_THROW(BatchPlan(blocks_of({0, 0}), {.global_batch = 1}), InvalidArgument);
  EXPECT_THROW(BatchPlan(blocks_of({3, 4}), {.global_batch = 8}), InvalidArgument);
  const BatchPlan carried(blocks_of({3, 4}), {.global_batch = 16, .carry_remainder = true, .shards = 2});
  EXPECT_EQ(batch_of(carried, {3, 4}, 0, {0, 16}).size(), 16U);
}

}  // namespace
}  // namespace braid
