#include "engine/input/schema/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/init.h"
#include "engine/input/schema/shuffled_rows.h"

namespace braid {
namespace {

std::shared_ptr<const Table> counting_table(std::int64_t rows) {
  auto table = std::make_shared<Table>();
  table->rows = rows;
  std::vector<std::int64_t> ids(static_cast<std::size_t>(rows));
  std::iota(ids.begin(), ids.end(), 0);
  table->columns.push_back({"id", Tensor::from<std::int64_t>(Shape{rows}, ids)});
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(rows) * 2);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i);
  table->columns.push_back({"pixel", Tensor::from<std::uint8_t>(Shape{rows, 2}, bytes), 0.5F});
  return table;
}

std::vector<std::int64_t> batch_ids(const Batch& batch) {
  auto ids = batch.tensors[0].data<std::int64_t>();
  return {ids.begin(), ids.end()};
}

/// Batches of 4 MiB and more are written past the caches, rows of 16 bytes' multiples alone.
TEST(BatcherTest, LargeBatchesHaveTheirRows) {
  for (const std::int64_t width : {784, 790}) {
    constexpr std::int64_t kRows = 6000;
    auto table = std::make_shared<Table>();
    table->rows = kRows;
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(kRows * width));
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 7 + i / 1000);
    table->columns.push_back({"pixel", Tensor::from<std::uint8_t>(Shape{kRows, width}, bytes)});
    std::vector<std::int64_t> ids(static_cast<std::size_t>(kRows));
    std::iota(ids.begin(), ids.end(), 0);
    table->columns.push_back({"id", Tensor::from<std::int64_t>(Shape{kRows}, ids)});
    Batcher batcher(table, {"id", "pixel"}, {.global_batch = kRows, .seed = 4, .as_stored = true});
    const Batch batch = batcher.make(0);
    const std::vector<std::int64_t> order = batch_ids(batch);
    const auto* made = reinterpret_cast<const std::uint8_t*>(batch.tensors[1].raw());
    for (std::size_t r = 0; r < order.size(); ++r, made += width)
      ASSERT_TRUE(std::equal(made, made + width, bytes.begin() + order[r] * width)) << "row " << r;
  }
}

/// Sizes about those of the pieces that are drawn at a time.
TEST(ShuffledRowsTest, AreThoseOfFisherAndYates) {
  for (const std::int64_t rows : {1, 2, 3, 2048, 2049, 2050, 4097, 10000}) {
    const RngKey key = make_rng_key(17, "shuffle", static_cast<std::uint64_t>(rows));
    std::vector<std::int64_t> order(static_cast<std::size_t>(rows));
    std::iota(order.begin(), order.end(), 0);
    std::vector<std::uint32_t> bits(2 * order.size());
    fill_bits(key, 0, bits);
    for (std::size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[((std::uint64_t{bits[2 * i - 2]} << 32) | bits[2 * i - 1]) % i]);
    EXPECT_EQ(shuffled_rows(rows, key, 0), order) << rows;
  }
}

TEST(BatcherTest, AnEpochIsAPermutationAndEpochsDiffer) {
  Batcher batcher(counting_table(100), {"id"}, {.global_batch = 10, .seed = 3});
  std::vector<std::int64_t> first, second;
  for (std::uint64_t t = 0; t < 20; ++t) {
    auto ids = batch_ids(batcher.make(t));
    (t < 10 ? first : second).insert((t < 10 ? first : second).end(), ids.begin(), ids.end());
  }
  EXPECT_EQ(std::set(first.begin(), first.end()).size(), 100U);
  EXPECT_EQ(std::set(second.begin(), second.end()).size(), 100U);
  EXPECT_NE(first, second);
}

TEST(BatcherTest, IdsThatFitAreDeliveredIn32BitsWhereTheyAreAskedForAsStored) {
  constexpr std::int64_t kFits = std::int64_t{1} << 31;
  auto table = std::make_shared<Table>();
  table->rows = 4;
  std::vector<std::int64_t> ids{0, 1, 2, kFits - 1, 4, 5, 6, 7};
  const auto add = [&](const std::string& name, std::vector<TableField> fields) {
    table->columns.push_back({name, Tensor::from<std::int64_t>(Shape{4, 2}, ids), 1.0F, std::move(fields)});
  };
  add("fits", {{"a", 1, kFits}, {"b", 1, 10}});
  add("large", {{"a", 1, kFits + 1}, {"b", 1, 10}});
  add("unknown", {{"a", 1, 0}, {"b", 1, 10}});
  add("plain", {});
  TableColumn bags{"bags", Tensor::from<std::int64_t>(Shape{8}, ids), 1.0F, {{"bags", 0, kFits}}};
  bags.offsets = Tensor::from<std::int64_t>(Shape{5}, std::vector<std::int64_t>{0, 3, 3, 4, 8});
  table->columns.push_back(bags);
  const std::vector<std::string> names{"fits", "large", "unknown", "plain", "bags"};
  for (const bool as_stored : {false, true}) {
    Batcher batcher(table, names, {.global_batch = 4, .shuffle = false, .as_stored = as_stored});
    const DType narrow = as_stored ? DType::Int32 : DType::Int64;
    const std::vector<DType> types{narrow, DType::Int64, DType::Int64, DType::Int64, narrow};
    const Batch batch = batcher.make(0);
    for (std::size_t c = 0; c < names.size(); ++c) {
      SCOPED_TRACE(names[c]);
      ASSERT_EQ(batcher.dtype(c), types[c]);
      ASSERT_EQ(batch.tensors[c].dtype(), types[c]);
      for (std::size_t i = 0; i < ids.size(); ++i)
        EXPECT_EQ(types[c] == DType::Int32 ? batch.tensors[c].data<std::int32_t>()[i]
                                           : batch.tensors[c].data<std::int64_t>()[i],
                  ids[i]);
      const auto room = static_cast<std::size_t>(batch.tensors[c].elements());
      for (std::size_t i = ids.size(); i < room; ++i)
        EXPECT_EQ(types[c] == DType::Int32 ? batch.tensors[c].data<std::int32_t>()[i]
                                           : batch.tensors[c].data<std::int64_t>()[i],
                  ids.back());
    }
  }
}

/// Rows whose orders are made as they are needed, ahead by some epochs, and by as many as there may be.
TEST(BatcherTest, ThreadsThatPassTheEndsOfEpochsTogetherMakeTheSameBatches) {
  const std::pair<std::int64_t, std::int64_t> sizes[] = {{40, 7}, {3000, 100}, {3000, 900}};
  for (int k = 0; k < 6; ++k) {
    const auto [rows, batch] = sizes[k / 2];
    SCOPED_TRACE(batch);
    const BatchOptions options{.global_batch = batch, .seed = 9, .carry_remainder = k % 2 == 1};
    Batcher one(counting_table(rows), {"id"}, options), together(counting_table(rows), {"id"}, options);
    constexpr std::uint64_t kTickets = 400;  // 13 epochs or more
    std::vector<std::vector<std::int64_t>> made(kTickets);
    std::atomic<std::uint64_t> next{0};
    std::vector<std::jthread> threads;
    for (int k = 0; k < 6; ++k)
      threads.emplace_back([&] {
        for (std::uint64_t t = next++; t < kTickets; t = next++) made[t] = batch_ids(together.make(t));
      });
    threads.clear();
    for (std::uint64_t t = 0; t < kTickets; ++t) ASSERT_EQ(made[t], batch_ids(one.make(t))) << "ticket " << t;
  }
}

TEST(BatcherTest, AnyTicketCanBeMadeAtAnyTime) {
  Batcher one(counting_table(64), {"id"}, {.global_batch = 8, .seed = 9});
  Batcher other(counting_table(64), {"id"}, {.global_batch = 8, .seed = 9});
  std::vector<std::vector<std::int64_t>> forward;
  for (std::uint64_t t = 0; t < 40; ++t) forward.push_back(batch_ids(one.make(t)));
  for (std::uint64_t t = 40; t-- > 0;) EXPECT_EQ(batch_ids(other.make(t)), forward[t]) << "ticket " << t;
}

TEST(BatcherTest, ColumnsThatNobodyWantsAreNotMade) {
  const BatchOptions options{.global_batch = 8, .seed = 9};
  Batcher all(counting_table(64), {"id", "pixel"}, options),
      some(counting_table(64), {"id", "pixel"}, options);
  some.keep_columns({"pixel"});
  const Batch made = some.make(3);
  ASSERT_EQ(made.tensors.size(), 1U);
  EXPECT_EQ(some.shape(0, 8), (Shape{8, 2}));
  const Batch whole = all.make(3);
  const auto got = made.tensors[0].data<float>(), expected = whole.tensors[1].data<float>();
  EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin(), expected.end()));
  some.keep_columns({});
  EXPECT_TRUE(some.make(4).tensors.empty());
  EXPECT_EQ(some.make(4).cursor, all.make(4).cursor);
  EXPECT_THROW(some.keep_columns({"none"}), InvalidArgument);
}

TEST(BatcherTest, WorkersShareEachGlobalBatchInContiguousParts) {
  Batcher whole(counting_table(60), {"id"}, {.global_batch = 12, .seed = 1});
  for (std::uint64_t t = 0; t < 7; ++t) {
    std::vector<std::int64_t> joined;
    for (int rank = 0; rank < 3; ++rank) {
      Batcher part(counting_table(60), {"id"}, {.global_batch = 12, .rank = rank, .world = 3, .seed = 1});
      auto ids = batch_ids(part.make(t));
      joined.insert(joined.end(), ids.begin(), ids.end());
    }
    EXPECT_EQ(joined, batch_ids(whole.make(t)));
  }
}

TEST(BatcherTest, EvaluationKeepsTheRemainderAndEnds) {
  Batcher batcher(counting_table(25), {"id"}, {.global_batch = 10, .shuffle = false, .keep_remainder = true});
  EXPECT_EQ(batcher.batches_per_epoch(), 3);
  EXPECT_EQ(batch_ids(batcher.make(2)), (std::vector<std::int64_t>{20, 21, 22, 23, 24}));
  EXPECT_THROW(batcher.make(3), OutOfRange);
}

TEST(BatcherTest, BytesBecomeScaledFloats) {
  Batcher batcher(counting_table(4), {"pixel"}, {.global_batch = 2, .shuffle = false});
  EXPECT_EQ(batcher.dtype(0), DType::Float32);
  EXPECT_THAT(batcher.make(1).tensors[0].data<float>(), testing::ElementsAre(2.0F, 2.5F, 3.0F, 3.5F));
}

TEST(BatcherTest, BlocksComeBackAndAreUsedAgain) {
  Batcher batcher(counting_table(8), {"id"}, {.global_batch = 2});
  const void* first = nullptr;
  {
    Batch batch = batcher.make(0);
    first = batch.tensors[0].raw();
    Batch other = batcher.make(1);
    EXPECT_NE(static_cast<const void*>(other.tensors[0].raw()), first)
        << "a batch that is in use is not overwritten";
  }
  std::set<const void*> seen;
  for (std::uint64_t t = 2; t < 6; ++t) seen.insert(batcher.make(t).tensors[0].raw());
  EXPECT_LE(seen.size(), 2U);
}

TEST(BatcherTest, CursorsRoundTrip) {
  Batcher batcher(counting_table(8), {"id"}, {.global_batch = 2});
  EXPECT_EQ(Batcher::ticket_of(batcher.make(41).cursor), 42U);
  EXPECT_THROW(Batcher::ticket_of("ticket=4x"), DataLoss);
  EXPECT_THROW(Batcher::ticket_of(""), DataLoss);
}

TEST(BatcherTest, CursorsSayEpochPositionAndWhatTheyCountIn) {
  Batcher batcher(counting_table(10), {"id"}, {.global_batch = 4, .seed = 7});
  EXPECT_EQ(batcher.make(2).cursor, "ticket=3");
  EXPECT_EQ(batcher.cursor(3), "ticket=3 epoch=1 position=4 rows=10 batch=4 seed=7");
  Batcher carried(counting_table(10), {"id"}, {.global_batch = 4, .seed = 7, .carry_remainder = true});
  EXPECT_EQ(carried.cursor(3), "ticket=3 epoch=1 position=2 rows=10 batch=4 seed=7");
}

TEST(BatcherTest, CarriedRemaindersLeaveNoRowOut) {
  for (const int world : {1, 2}) {
    std::vector<std::int64_t> seen;
    for (std::uint64_t t = 0; t < 5; ++t)
      for (int rank = 0; rank < world; ++rank) {
        Batcher part(counting_table(10), {"id"},
                     {.global_batch = 4, .rank = rank, .world = world, .seed = 7, .carry_remainder = true});
        const auto ids = batch_ids(part.make(t));
        seen.insert(seen.end(), ids.begin(), ids.end());
      }
    ASSERT_EQ(seen.size(), 20U);
    EXPECT_EQ(std::set(seen.begin(), seen.begin() + 10).size(), 10U);
    EXPECT_EQ(std::set(seen.begin() + 10, seen.end()).size(), 10U);
  }
  Batcher small(counting_table(3), {"id"}, {.global_batch = 7, .shuffle = false, .carry_remainder = true});
  EXPECT_EQ(batch_ids(small.make(1)), (std::vector<std::int64_t>{1, 2, 0, 1, 2, 0, 1}));
}

TEST(BatcherTest, ABufferedShuffleIsAPermutationThatNoRowLeavesEarly) {
  constexpr std::int64_t kRows = 1000, kBuffer = 50;
  Batcher batcher(counting_table(kRows), {"id"}, {.global_batch = 100, .seed = 3, .shuffle_buffer = kBuffer});
  std::vector<std::int64_t> order, second;
  for (std::uint64_t t = 0; t < 20; ++t) {
    const auto ids = batch_ids(batcher.make(t));
    (t < 10 ? order : second).insert((t < 10 ? order : second).end(), ids.begin(), ids.end());
  }
  EXPECT_EQ(std::set(order.begin(), order.end()).size(), static_cast<std::size_t>(kRows));
  EXPECT_NE(order, second);
  std::int64_t moved = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    EXPECT_LT(order[i], static_cast<std::int64_t>(i) + kBuffer)
        << "a row is drawn only once it is in the buffer";
    moved += order[i] != static_cast<std::int64_t>(i);
  }
  EXPECT_GT(moved, 900);
}

TEST(BatcherTest, WorkersThatDoNotDivideABatchTakePartsThatFollowEachOther) {
  for (const bool carry : {false, true})
    for (const int world : {2, 3, 5}) {
      const BatchOptions all{.global_batch = 17, .seed = 4, .carry_remainder = carry};
      Batcher whole(counting_table(60), {"id"}, all);
      for (std::uint64_t ticket = 0; ticket < 8; ++ticket) {
        std::vector<std::int64_t> joined;
        for (int rank = 0; rank < world; ++rank) {
          BatchOptions its = all;
          its.rank = rank;
          its.world = world;
          Batcher part(counting_table(60), {"id"}, its);
          const auto ids = batch_ids(part.make(ticket));
          EXPECT_EQ(std::ssize(ids), 17 / world + (rank < 17 % world ? 1 : 0));
          EXPECT_EQ(part.rows_of(ticket), std::ssize(ids));
          EXPECT_EQ(part.cursor(ticket), whole.cursor(ticket)) << "a cursor is the job's";
          joined.insert(joined.end(), ids.begin(), ids.end());
        }
        EXPECT_EQ(joined, batch_ids(whole.make(ticket)))
            << "ticket " << ticket << ", " << world << " workers";
      }
    }
}

TEST(BatcherTest, RefusesWhatCannotBeBatched) {
  auto table = counting_table(10);
  EXPECT_THROW(Batcher(table, {"nope"}, {.global_batch = 2}), InvalidArgument);
  EXPECT_THROW(Batcher(table, {"id"}, {.global_batch = 11}), InvalidArgument);
  EXPECT_THROW(Batcher(table, {"id"}, {.global_batch = 2, .world = 3}), InvalidArgument);
  EXPECT_THROW(Batcher(counting_table(0), {"id"}, {.global_batch = 1}), InvalidArgument);
}

TEST(BatcherTest, ManyThreadsMakeTheSameBatches) {
  Batcher batcher(counting_table(64), {"id"}, {.global_batch = 8, .seed = 2});
  std::vector<std::vector<std::int64_t>> got(64);
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t k = 0; k < 4; ++k)
      threads.emplace_back([&, k] {
        for (std::uint64_t t = k; t < 64; t += 4) got[t] = batch_ids(batcher.make(t));
      });
  }
  Batcher serial(counting_table(64), {"id"}, {.global_batch = 8, .seed = 2});
  for (std::uint64_t t = 0; t < 64; ++t) EXPECT_EQ(got[t], batch_ids(serial.make(t)));
}

}  // namespace
}  // namespace braid
