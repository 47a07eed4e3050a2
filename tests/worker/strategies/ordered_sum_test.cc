// Sums over ranks are made in the order of ranks in float32, those of halves rounded once, with the same bits
// on all ranks.
#include "worker/strategies/ordered_sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <thread>

#include "comm/local/local_communicator.h"
#include "engine/ops/common/half.h"

namespace braid::worker {
namespace {

template <class Half>
struct TypeOf;
template <>
struct TypeOf<Float16> {
  static constexpr DType value = DType::Float16;
};
template <>
struct TypeOf<BFloat16> {
  static constexpr DType value = DType::BFloat16;
};

template <>
struct TypeOf<float> {
  static constexpr DType value = DType::Float32;
};

/// By rank, then by array.
template <class Half>
using Arrays = std::vector<std::vector<std::vector<Half>>>;

template <class Half>
void sum_over_threads(Arrays<Half>& arrays, const std::vector<std::int64_t>& counts) {
  const int ranks = static_cast<int>(arrays.size());
  std::vector<std::unique_ptr<comm::Communicator>> group = comm::make_local_group(ranks);
  const OrderedSum sum(counts, ranks, TypeOf<Half>::value);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const auto r = static_cast<std::size_t>(rank);
      std::vector<std::byte> scratch(sum.scratch_bytes());
      std::vector<void*> values;
      for (auto& array : arrays[r]) values.push_back(array.data());
      sum.run(*group[r], values.data(), values.data(), scratch.data(), {},  // in place
              WaitContext::with_timeout(std::chrono::seconds(60)));
    });
  for (std::thread& thread : threads) thread.join();
}

template <class Half>
void expect_sums(int ranks, const std::vector<std::int64_t>& counts) {
  std::mt19937 random(static_cast<unsigned>(ranks));
  std::normal_distribution<float> number(0, 100);
  Arrays<Half> arrays(static_cast<std::size_t>(ranks));
  for (auto& of_rank : arrays)
    for (const std::int64_t count : counts) {
      of_rank.emplace_back();
      for (std::int64_t i = 0; i < count; ++i) of_rank.back().push_back(Half(number(random)));
    }
  const Arrays<Half> given = arrays;
  sum_over_threads(arrays, counts);
  for (std::size_t a = 0; a < counts.size(); ++a)
    for (std::size_t i = 0; i < static_cast<std::size_t>(counts[a]); ++i) {
      float expected = 0;
      for (const auto& of_rank : given) expected += static_cast<float>(of_rank[a][i]);
      for (int r = 0; r < ranks; ++r)
        ASSERT_EQ(static_cast<float>(arrays[static_cast<std::size_t>(r)][a][i]),
                  static_cast<float>(Half(expected)))
            << "of " << ranks << " ranks " << r << ", array " << a << ", element " << i;
    }
}

TEST(OrderedSumTest, IsTheSumOfFloat32RoundedOnce) {
  for (const int ranks : {1, 2, 3, 4, 5, 8})
    for (const std::vector<std::int64_t>& counts :
         {std::vector<std::int64_t>{1}, {0}, {0, 7, 0}, {3, 1, 130}, {4097, 64}}) {
      expect_sums<BFloat16>(ranks, counts);
      expect_sums<Float16>(ranks, counts);
      expect_sums<float>(ranks, counts);
    }
}

TEST(OrderedSumTest, InfinitiesAndNaNAreSeenByAllRanks) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Arrays<Float16> arrays(3, {std::vector<Float16>(5, Float16(1.0F))});
  arrays[1][0][1] = Float16(kInfinity);
  arrays[2][0][2] = Float16(std::numeric_limits<float>::quiet_NaN());
  for (auto& of_rank : arrays) of_rank[0][3] = Float16(60000.0F);  // the sum is too large for float16
  sum_over_threads(arrays, {5});
  for (const auto& of_rank : arrays) {
    EXPECT_EQ(static_cast<float>(of_rank[0][0]), 3);
    EXPECT_EQ(static_cast<float>(of_rank[0][1]), kInfinity);
    EXPECT_TRUE(std::isnan(static_cast<float>(of_rank[0][2])));
    EXPECT_EQ(static_cast<float>(of_rank[0][3]), kInfinity);
    EXPECT_EQ(static_cast<float>(of_rank[0][4]), 3);
  }
}

}  // namespace
}  // namespace braid::worker
