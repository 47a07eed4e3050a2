#include "engine/input/stream/streamed_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "base/error.h"
#include "tests/support/expect_error.h"

namespace braid {
namespace {

using testing::HasSubstr;

/// Rows that are their numbers; reads may be slow, or fail.
class CountingBlocks : public BlockSource {
 public:
  CountingBlocks(std::size_t blocks, std::int64_t rows)
      : blocks_(blocks, DataBlock{0, rows, 8}), rows_(rows) {
    auto table = std::make_shared<Table>();
    table->columns.push_back({"id", Tensor(DType::Int64, Shape{0})});
    columns_ = table;
  }
  const std::vector<DataBlock>& blocks() const override { return blocks_; }
  std::shared_ptr<const Table> columns() const override { return columns_; }
  std::shared_ptr<const Table> read(std::span<const BlockPart> parts) override {
    ++reads;
    const int under_way = ++reading;
    for (int most = most_reading; under_way > most && !most_reading.compare_exchange_weak(most, under_way);) {
    }
    if (delay.count() > 0) std::this_thread::sleep_for(delay);
    --reading;
    std::vector<std::int64_t> ids;
    for (const BlockPart& part : parts) {
      if (static_cast<std::int64_t>(part.block) == fails) throw DataLoss("block of trouble");
      for (std::int64_t r = 0; r < part.rows; ++r)
        ids.push_back(static_cast<std::int64_t>(part.block) * rows_ + part.first + r);
    }
    auto table = std::make_shared<Table>();
    table->rows = std::ssize(ids);
    table->columns.push_back({"id", Tensor::from<std::int64_t>(Shape{table->rows}, ids)});
    return table;
  }
  std::string describe(std::size_t block) const override { return "block " + std::to_string(block); }
  std::uint64_t fingerprint() const override { return 7; }

  std::atomic<int> reads = 0, reading = 0, most_reading = 0;  // of all time, now, and at once
  std::chrono::milliseconds delay{0};
  std::int64_t fails = -1;

 private:
  std::vector<DataBlock> blocks_;
  std::int64_t rows_;
  std::shared_ptr<const Table> columns_;
};

using Ids = std::vector<std::int64_t>;

Ids ids_of(const Batch& batch) {
  const auto ids = batch.tensors[0].data<std::int64_t>();
  return {ids.begin(), ids.end()};
}

Batcher batcher_of(const std::shared_ptr<BlockSource>& source, const StreamedRowsOptions& options,
                   const BatchOptions& batches) {
  return {std::make_shared<StreamedRows>(source, options, batches), {"id"}, batches};
}

TEST(StreamedRowsTest, AnyNumberOfThreadsMakesTheSameBatches) {
  const auto source = std::make_shared<CountingBlocks>(50, 20);
  const BatchOptions batches{.global_batch = 24, .seed = 4};
  StreamedRowsOptions options{.window_rows = 160, .shards = 4, .threads = 0};
  Batcher alone = batcher_of(source, options, batches);
  std::vector<Ids> expected;
  for (std::uint64_t t = 0; t < 100; ++t) expected.push_back(ids_of(alone.make(t)));
  for (const int threads : {1, 2, 4, 8})
    for (const int readers : {0, 1, 3}) {
      options.threads = readers;
      Batcher batcher = batcher_of(source, options, batches);
      std::vector<Ids> made(expected.size());
      std::atomic<std::uint64_t> next = 0;
      {
        std::vector<std::jthread> makers;
        for (int i = 0; i < threads; ++i)
          makers.emplace_back([&] {
            for (std::uint64_t t = next++; t < made.size(); t = next++) made[t] = ids_of(batcher.make(t));
          });
      }
      EXPECT_EQ(made, expected) << threads << " threads, " << readers << " readers";
    }
}

TEST(StreamedRowsTest, WorkersPartsAreTheGlobalBatch) {
  const auto source = std::make_shared<CountingBlocks>(50, 20);
  const StreamedRowsOptions options{.window_rows = 160, .shards = 4};
  Batcher whole = batcher_of(source, options, {.global_batch = 24, .seed = 4});
  for (const int world : {1, 2, 3, 4}) {
    std::vector<Ids> together(60);
    for (int rank = 0; rank < world; ++rank) {
      Batcher part =
          batcher_of(source, options, {.global_batch = 24, .rank = rank, .world = world, .seed = 4});
      for (std::uint64_t t = 0; t < together.size(); ++t)
        for (const std::int64_t id : ids_of(part.make(t))) together[t].push_back(id);
    }
    for (std::uint64_t t = 0; t < together.size(); ++t) EXPECT_EQ(together[t], ids_of(whole.make(t)));
  }
}

TEST(StreamedRowsTest, AResumedStreamReadsAWindowOfEachShardAtMost) {
  const auto source = std::make_shared<CountingBlocks>(400, 20);
  const BatchOptions batches{.global_batch = 24, .seed = 4};
  const StreamedRowsOptions options{.window_rows = 160, .shards = 4, .threads = 0};
  Batcher first = batcher_of(source, options, batches);
  Ids expected;
  for (std::uint64_t t = 0; t <= 211; ++t) expected = ids_of(first.make(t));
  source->reads = 0;
  Batcher resumed = batcher_of(source, options, batches);
  EXPECT_EQ(ids_of(resumed.make(211)), expected);
  EXPECT_LE(source->reads, 8) << "of four shards, a window and where it ends in the batch the next";
}

TEST(StreamedRowsTest, HoldsNoMoreThanItsBudget) {
  const auto source = std::make_shared<CountingBlocks>(1000, 100);
  const BatchOptions batches{.global_batch = 50, .seed = 4};
  // A row takes 12 bytes: one window of each of the 4 shards 4 x 100 x 12.
  const StreamedRowsOptions options{.window_rows = 400, .shards = 4, .memory_bytes = 24000, .threads = 2};
  auto rows = std::make_shared<StreamedRows>(source, options, batches);
  Batcher batcher(rows, {"id"}, batches);
  for (std::uint64_t t = 0; t < 1000; ++t) batcher.make(t);
  const StreamedRowsStatistics seen = rows->statistics();
  EXPECT_LE(seen.most_bytes, 24000 + 4 * 100 * 12) << "a window that is needed at once is read in any case";
  EXPECT_LE(seen.windows_read, 1000 * 50 / 100 + 40) << "each is read about once";
}

TEST(StreamedRowsTest, WithLittleMemoryItReadsLessAheadAndMakesTheSameBatches) {
  const auto source = std::make_shared<CountingBlocks>(200, 100);
  const BatchOptions batches{.global_batch = 50, .seed = 4};
  StreamedRowsOptions options{.window_rows = 400, .shards = 4, .memory_bytes = 240000, .threads = 2};
  auto plenty = std::make_shared<StreamedRows>(source, options, batches);
  options.ahead_bytes = 6000;
  auto little = std::make_shared<StreamedRows>(source, options, batches);
  Batcher first(plenty, {"id"}, batches), second(little, {"id"}, batches);
  for (std::uint64_t t = 0; t < 200; ++t) EXPECT_EQ(ids_of(first.make(t)), ids_of(second.make(t)));
  EXPECT_LE(little->statistics().most_bytes, 6000 + 9 * 100 * 12) << "what batches need is read in any case";
  EXPECT_EQ(plenty->order_id(), little->order_id());
}

TEST(StreamedRowsTest, ReadsAheadWhatWillBeAskedForAlone) {
  const auto source = std::make_shared<CountingBlocks>(200, 100);
  const BatchOptions batches{.global_batch = 50, .seed = 4};
  StreamedRowsOptions options{.window_rows = 100, .shards = 1, .threads = 2};
  // Batches 0 to 19, then 200 to 219.
  options.next_asked = [](std::uint64_t batch) -> std::optional<std::uint64_t> {
    if (batch < 20) return batch;
    return batch < 220 ? std::optional(std::max<std::uint64_t>(batch, 200)) : std::nullopt;
  };
  auto rows = std::make_shared<StreamedRows>(source, options, batches);
  Batcher batcher(rows, {"id"}, batches);
  for (std::uint64_t t = 0; t < 20; ++t) batcher.make(t);
  for (int look = 0; look < 500 && rows->statistics().windows_read < 20; ++look)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const std::int64_t waited = rows->statistics().windows_waited;
  for (std::uint64_t t = 200; t < 220; ++t) batcher.make(t);
  EXPECT_EQ(rows->statistics().windows_read, 20) << "of 100 rows, two batches";
  EXPECT_EQ(rows->statistics().windows_waited, waited) << "the later ones were there";
}

TEST(StreamedRowsTest, SlowReadsAreAheadOfTheSteps) {
  const auto source = std::make_shared<CountingBlocks>(40, 100);
  source->delay = std::chrono::milliseconds(4);
  const BatchOptions batches{.global_batch = 50, .seed = 4};
  auto rows =
      std::make_shared<StreamedRows>(source, StreamedRowsOptions{.window_rows = 100, .shards = 1}, batches);
  Batcher batcher(rows, {"id"}, batches);
  for (std::uint64_t t = 0; t < 80; ++t) {
    batcher.make(t);
    std::this_thread::sleep_for(std::chrono::milliseconds(8));
  }
  EXPECT_LE(rows->statistics().windows_waited, 8) << "of 40";
}

TEST(StreamedRowsTest, RowsInOrderAreReadByAllReaders) {
  // 120,000 bytes of rows, far more than the budget.
  const auto source = std::make_shared<CountingBlocks>(1000, 10);
  source->delay = std::chrono::milliseconds(2);
  const BatchOptions batches{.global_batch = 25, .shuffle = false};
  const StreamedRowsOptions options{.memory_bytes = 24000, .threads = 3};
  auto rows = std::make_shared<StreamedRows>(source, options, batches);
  Batcher batcher(rows, {"id"}, batches);
  std::int64_t next = 0;
  for (std::uint64_t t = 0; t < 400; ++t)
    for (const std::int64_t id : ids_of(batcher.make(t))) EXPECT_EQ(id, next++);
  EXPECT_GE(source->most_reading, 3);
  EXPECT_LE(rows->statistics().most_bytes, 24000 + 1000);
}

TEST(StreamedRowsTest, GoesBackWhereItIsAskedTo) {
  const auto source = std::make_shared<CountingBlocks>(100, 20);
  const BatchOptions batches{.global_batch = 24, .seed = 4};
  Batcher batcher = batcher_of(source, {.window_rows = 160, .shards = 4}, batches);
  const Ids third = ids_of(batcher.make(3));
  for (std::uint64_t t = 4; t < 70; ++t) batcher.make(t);
  EXPECT_EQ(ids_of(batcher.make(3)), third);
}

TEST(StreamedRowsTest, AFailedReadReachesWhoNeedsIt) {
  const auto source = std::make_shared<CountingBlocks>(20, 10);
  source->fails = 7;
  const BatchOptions batches{.global_batch = 10, .shuffle = false};
  for (const int threads : {0, 2}) {
    Batcher batcher = batcher_of(source, {.window_rows = 10, .shards = 1, .threads = threads}, batches);
    for (std::uint64_t t = 0; t < 7; ++t)
      EXPECT_EQ(ids_of(batcher.make(t))[0], static_cast<std::int64_t>(10 * t));
    EXPECT_ERROR(batcher.make(7), DataLoss, HasSubstr("block of trouble"));
  }
}

TEST(StreamedRowsTest, AReadThatHangsIsNamed) {
  const auto source = std::make_shared<CountingBlocks>(4, 10);
  source->delay = std::chrono::milliseconds(300);
  const BatchOptions batches{.global_batch = 10, .shuffle = false};
  Batcher batcher = batcher_of(
      source, {.window_rows = 10, .shards = 1, .threads = 0, .timeout = std::chrono::milliseconds(20)},
      batches);
  std::jthread reader([&] { batcher.make(0); });
  while (source->reads == 0) std::this_thread::yield();
  EXPECT_ERROR(batcher.make(0), DeadlineExceeded, HasSubstr("block 0"));
}

TEST(StreamedRowsTest, CursorsNameTheOrder) {
  const auto source = std::make_shared<CountingBlocks>(20, 10);
  const BatchOptions batches{.global_batch = 10, .seed = 2};
  Batcher some = batcher_of(source, {.window_rows = 10, .shards = 2}, batches);
  Batcher other = batcher_of(source, {.window_rows = 80, .shards = 2}, batches);
  EXPECT_THAT(some.cursor(23), HasSubstr("ticket=23 epoch=1 position=30 rows=200 batch=10 seed=2 stream="));
  EXPECT_NE(some.cursor(23), other.cursor(23)) << "windows of another size are another order";
  EXPECT_EQ(Batcher::ticket_of(some.cursor(23)), 23U);
}

}  // namespace
}  // namespace braid
