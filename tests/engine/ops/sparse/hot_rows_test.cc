// Hot ids and rows, against the definition.
#include <gtest/gtest.h>

#include <random>

#include "tests/engine/ops/op_runner.h"
#include "tests/support/message_of.h"

namespace braid::testing {
namespace {

TEST(SplitHotIdsTest, EveryIdIsEitherColdOrThePlaceOfAHotRow) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 50; ++trial) {
    const std::int64_t rows = std::uniform_int_distribution<std::int64_t>(1, 200)(random);
    std::vector<std::int64_t> hot, ids;
    for (std::int64_t row = 0; row < rows; ++row)
      if (random() % 3 == 0) hot.push_back(row);
    std::uniform_int_distribution<std::int64_t> any(-1, rows - 1);
    for (int k = 0; k < 300; ++k) ids.push_back(any(random));
    const auto out = run_op("braid.SplitHotIds", {Tensor::from<std::int64_t>({300}, ids)}, {{"hot", hot}});
    const auto cold = out[0].data<std::int64_t>(), places = out[1].data<std::int64_t>();
    for (std::size_t k = 0; k < ids.size(); ++k) {
      if (places[k] >= 0) {
        ASSERT_EQ(hot[static_cast<std::size_t>(places[k])], ids[k]);
        ASSERT_EQ(cold[k], -1);
      } else {
        ASSERT_FALSE(std::ranges::binary_search(hot, ids[k]));
        ASSERT_EQ(cold[k], ids[k]);
      }
    }
  }
}

TEST(SplitHotIdsTest, HotIdsThatDoNotRiseAreRefused) {
  const Tensor ids = Tensor::from<std::int64_t>({1}, std::vector<std::int64_t>{0});
  for (const std::vector<std::int64_t>& hot : {std::vector<std::int64_t>{3, 3}, {5, 1}})
    EXPECT_EQ(message_of([&] {
                run_op("braid.SplitHotIds", {ids}, {{"hot", hot}});
              }),
              "[braid.SplitHotIds] node 'op': hot ids must rise");
  EXPECT_EQ(message_of([&] {
              run_op("braid.SplitHotIds", {ids}, {{"hot", std::vector<std::int64_t>{-2, 1}}});
            }),
            "[braid.SplitHotIds] node 'op': hot ids must not be negative");
}

}  // namespace
}  // namespace braid::testing
