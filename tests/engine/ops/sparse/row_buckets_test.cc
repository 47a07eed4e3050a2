// Lists of rows by rank: against the definition, on random tables, ranks and ids.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <set>

#include "engine/ops/common/row_buckets.h"
#include "tests/engine/ops/op_runner.h"
#include "tests/support/message_of.h"

namespace braid::testing {
namespace {

TEST(RowShuffleTest, IsAPermutationOfAnyNumberOfRows) {
  for (const std::int64_t rows : {1, 2, 3, 4, 5, 7, 8, 9, 31, 64, 100, 1000, 4097}) {
    const RowShuffle shuffle(rows);
    std::set<std::int64_t> places;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t place = shuffle.place_of(row);
      ASSERT_GE(place, 0);
      ASSERT_LT(place, rows);
      ASSERT_EQ(shuffle.row_at(place), row) << rows;
      places.insert(place);
    }
    ASSERT_EQ(std::ssize(places), rows);
  }
  const RowShuffle large(1000000007LL * 1000);
  for (const std::int64_t row : {0LL, 1LL, 123456789012LL, 1000000007LL * 1000 - 1})
    EXPECT_EQ(large.row_at(large.place_of(row)), row);
}

/// Of ids that users have: in a row, or multiples of a number.
TEST(RowShuffleTest, SpreadsPatternsOverTheRanks) {
  const std::int64_t rows = 1 << 20;
  const RowShuffle shuffle(rows);
  for (const std::int64_t stride : {1, 2, 4, 8, 64, 1000})
    for (const std::int64_t ranks : {2, 3, 4, 8}) {
      std::map<std::int64_t, int> held;
      for (std::int64_t k = 0; k < 1000; ++k) ++held[shuffle.place_of(k * stride) % ranks];
      for (const auto& [rank, count] : held)
        EXPECT_NEAR(count, 1000.0 / static_cast<double>(ranks), 130)
            << "stride " << stride << ", ranks " << ranks;
    }
}

struct Lists {
  std::vector<Tensor> out;
  std::int64_t capacity() const { return out[0].shape()[1]; }
  std::int64_t bucket(std::int64_t place) const {
    return out[0].data<std::int64_t>()[static_cast<std::size_t>(place)];
  }
};

Lists bucket_ids(const std::vector<Tensor>& ids, AttrMap attrs) {
  return {run_op("braid.BucketIds", ids, std::move(attrs))};
}

TEST(BucketIdsTest, EveryIdsPlaceHasItsRowAndEveryRowIsThereOnce) {
  std::mt19937 random(7);
  const auto draw = [&](std::int64_t from, std::int64_t to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random);
  };
  for (int trial = 0; trial < 300; ++trial) {
    const RowBuckets b{
        .rows = draw(1, 60), .ranks = draw(1, 5), .split = static_cast<RowSplit>(draw(0, 2)), .owner = 0};
    const std::int64_t n = draw(1, 40);
    Tensor ids(DType::Int64, Shape{n});
    std::set<std::int64_t> distinct;
    for (std::int64_t& id : ids.data<std::int64_t>())
      distinct.insert(id = draw(0, trial % 3 == 0 ? 0 : b.rows - 1));
    const char* split = b.split == RowSplit::Hashed ? kHashed : b.split == RowSplit::Owned ? kOwned : kAll;
    const Lists lists = bucket_ids({ids}, {{"rows", b.rows}, {"ranks", b.ranks}, {"split", split}});
    ASSERT_EQ(lists.out[0].shape(), (Shape{b.ranks, b.capacity(n)}));
    const RowShuffle shuffle(b.rows);
    std::int64_t used = 0;
    for (std::int64_t place = 0; place < b.ranks * lists.capacity(); ++place) {
      used += lists.bucket(place) >= 0 ? 1 : 0;
      if (place % lists.capacity() > 0 && lists.bucket(place) >= 0) {
        ASSERT_GE(lists.bucket(place - 1), 0) << "-1 behind the rows only";
        ASSERT_LT(lists.bucket(place - 1), lists.bucket(place));
      }
    }
    ASSERT_EQ(used, std::ssize(distinct) * (b.split == RowSplit::All ? b.ranks : 1));
    for (std::int64_t k = 0; k < n; ++k) {
      const auto at = static_cast<std::size_t>(k);
      const std::int64_t place = lists.out[2].data<std::int32_t>()[at], id = ids.data<std::int64_t>()[at];
      const std::int64_t shuffled = shuffle.place_of(id);
      const bool hashed = b.split == RowSplit::Hashed;
      ASSERT_EQ(lists.bucket(place), hashed ? shuffled / b.ranks : id);
      ASSERT_EQ(place / lists.capacity(), hashed ? shuffled % b.ranks : 0);
    }
    std::int64_t before = -1;
    for (const std::int64_t entry : lists.out[1].data<std::int64_t>()) {
      ASSERT_LT(before, entry);
      before = entry;
      ASSERT_EQ(lists.out[2].data<std::int32_t>()[static_cast<std::size_t>(entry & 0xffffffff)], entry >> 32);
    }
  }
}

TEST(BucketIdsTest, AnIdThatIsNoRowIsRefusedByName) {
  for (const std::int64_t id : {-1, 10})
    EXPECT_EQ(message_of([&] {
                bucket_ids({i64({2}, {3, id})}, {{"rows", 10}, {"ranks", 2}});
              }),
              "[braid.BucketIds] node 'op': indices[1] = " + std::to_string(id) + " is not in [0, 10)");
}

TEST(SumBucketsTest, AddsInTheOrderOfPositionsAndUnbucketGivesBack) {
  const Tensor ids = i64({5}, {3, 1, 3, 0, 3});
  for (const auto& [split, blocks] : {std::pair{kHashed, "own"}, {kAll, "columns"}, {kAll, "copies"}}) {
    const Lists lists = bucket_ids({ids}, {{"rows", 4}, {"ranks", 2}, {"split", split}});
    const Tensor values = f32({5, 2}, {1e8F, 1, 2, 2, 1, 3, 4, 4, -1e8F, 5});
    const Tensor sums = run_op("braid.SumBuckets", {values, lists.out[1], lists.out[0]},
                               {{"blocks", blocks}, {"fill", true}})[0];
    const bool copies = std::string(blocks) == "copies";
    if (copies) {
      const std::size_t half = sums.bytes() / 2;
      EXPECT_EQ(std::memcmp(sums.raw(), sums.raw() + half, half), 0);
    }
    const Tensor rows = run_op("braid.Unbucket", {sums, lists.out[2]}, {{"blocks", blocks}})[0];
    // (1e8 + 1) - 1e8 in float32, from the left.
    EXPECT_EQ(to_doubles(rows), (std::vector<double>{0, 9, 2, 2, 0, 9, 4, 4, 0, 9})) << blocks;
  }
}

}  // namespace
}  // namespace braid::testing
