// What queries see together follows from two of them (engine/ops/ragged/ragged_mask.h): against all of them.
#include "engine/ops/ragged/ragged_mask.h"

#include <gtest/gtest.h>

#include <random>

namespace braid {
namespace {

using Mask = RowMaskOf<std::int32_t>;

class Random {
 public:
  std::int32_t below(std::int32_t n) {
    return static_cast<std::int32_t>(random_() % static_cast<unsigned>(n));
  }

 private:
  std::mt19937 random_{1};
};

Mask random_mask(Random& random) {
  Mask mask;
  mask.rules = {random.below(2) == 0, random.below(2) == 0 ? 0 : 1 + random.below(20),
                random.below(2) == 0 ? 0 : 1 + random.below(8)};
  mask.length = 1 + random.below(30);
  mask.history = mask.length - (random.below(3) == 0 ? random.below(std::min(mask.length + 1, 6)) : 0);
  return mask;
}

TEST(RowMaskTest, RangesOfQueriesAreThoseOfEachOfThem) {
  Random random;
  int full = 0, none = 0;
  for (int i = 0; i < 100'000; ++i) {
    const Mask mask = random_mask(random);
    const std::int32_t begin = random.below(mask.length), end = begin + 1 + random.below(mask.length - begin);
    const std::int32_t from = random.below(mask.length), to = from + 1 + random.below(8);
    bool any = false, all = true;
    Mask::Range together{mask.history, 0, false};
    for (std::int32_t q = begin; q < end; ++q) {
      const Mask::Range range = mask.keys(q);
      together = {std::min(together.from, range.from), std::max(together.to, range.to),
                  together.self || range.self};
      for (std::int32_t k = from; k < to; ++k) {
        any = any || mask.sees(q, k);
        all = all && mask.sees(q, k);
      }
    }
    const Mask::Range span = mask.span(begin, end);
    ASSERT_EQ(span.self, together.self);
    if (together.from < together.to) {
      ASSERT_EQ(span.from, together.from);
      ASSERT_EQ(span.to, together.to);
    }
    ASSERT_EQ(mask.any(begin, end, from, to), any);
    if (mask.all(begin, end, from, to)) {
      ASSERT_TRUE(all);
    }
    if (all && !span.self) {
      ASSERT_TRUE(mask.all(begin, end, from, to));
    }
    full += all ? 1 : 0;
    none += any ? 0 : 1;
  }
  EXPECT_GT(full, 10'000);
  EXPECT_GT(none, 10'000);
}

}  // namespace
}  // namespace braid
