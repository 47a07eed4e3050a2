// Routes of sparse mixtures, against the definition.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "tests/engine/ops/op_runner.h"
#include "tests/support/message_of.h"

namespace braid::testing {
namespace {

using ::testing::HasSubstr;

AttrMap layer(std::int64_t experts, std::int64_t groups, double factor) {
  return {{"experts", experts}, {"groups", groups}, {"capacity_factor", factor}};
}

TEST(RouteToExpertsTest, FirstChoicesComeFirstAndFullExpertsDrop) {
  // Capacity 1.0 * 2 * 4 / 3, rounded up: 3. Expert 0 is chosen by all.
  const auto out = run_op("braid.RouteToExperts", {i32({4, 2}, {1, 0, 0, 2, 0, 1, 0, 2})}, layer(3, 1, 1));
  const auto slots = out[0].data<std::int32_t>();
  EXPECT_EQ(std::vector<std::int32_t>(slots.begin(), slots.end()),
            (std::vector<std::int32_t>{3, -1, 0, 6, 1, 4, 2, 7}));
  const auto load = out[1].data<float>();
  for (std::size_t t = 0; t < 4; ++t) {
    EXPECT_FLOAT_EQ(load[3 * t], 0.5F);
    EXPECT_FLOAT_EQ(load[3 * t + 1], 0.25F);
    EXPECT_FLOAT_EQ(load[3 * t + 2], 0.25F);
  }
}

TEST(RouteToExpertsTest, NoSlotIsTakenTwiceAndNoneIsLeftWhereAChoiceIsDropped) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 30; ++trial) {
    const std::int64_t experts = 1 + random() % 6, groups = 1 + random() % 4, tokens = random() % 50;
    const std::int64_t choices =
        1 + static_cast<std::int64_t>(random() % std::min<std::uint64_t>(experts, 3));
    Tensor chosen(DType::Int32, Shape{tokens, choices});
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t k = 0, first = random() % experts; k < choices; ++k)
        chosen.data<std::int32_t>()[t * choices + k] = static_cast<std::int32_t>((first + k) % experts);
    const double factor = trial % 3 * 0.6;
    const auto slots = run_op("braid.RouteToExperts", {chosen}, layer(experts, groups, factor))[0];
    const std::int64_t of_group = (tokens + groups - 1) / groups;
    std::set<std::int32_t> taken;
    std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> kept, dropped;  // by expert and group
    for (std::int64_t i = 0; i < tokens * choices; ++i) {
      const std::int32_t slot = slots.data<std::int32_t>()[i];
      const auto place =
          std::pair<std::int64_t, std::int64_t>(chosen.data<std::int32_t>()[i], i / choices / of_group);
      ++(slot < 0 ? dropped : kept)[place];
      if (slot >= 0) {
        EXPECT_TRUE(taken.insert(slot).second) << slot;
      }
    }
    if (factor == 0) {
      EXPECT_TRUE(dropped.empty());
    }
    std::set<std::int64_t> full;
    for (const auto& [place, count] : dropped) full.insert(kept[place]);
    EXPECT_LE(full.size(), 1u) << "all that drop have the same capacity";
  }
}

TEST(RouteToExpertsTest, AChoiceThatIsNoExpertIsNamed) {
  EXPECT_EQ(message_of([] {
              run_op("braid.RouteToExperts", {i32({2, 1}, {0, 3})}, layer(3, 1, 1));
            }),
            "[braid.RouteToExperts] node 'op': choice 3 is none of 3 experts");
  EXPECT_THAT(message_of([] {
                run_op("braid.RouteToExperts", {i32({1, 3}, {0, 1, 0})}, layer(2, 1, 1));
              }),
              HasSubstr("3 choices of 2 experts"));
  EXPECT_THAT(message_of([] {
                run_op("braid.RouteToExperts", {i32({1, 1}, {0})}, layer(0, 1, 1));
              }),
              HasSubstr("0 experts"));
}

TEST(DispatchTokensTest, ASlotThatThereIsNotIsNamed) {
  EXPECT_EQ(message_of([] {
              run_op("braid.CombineTokens", {random_f64({2, 1, 3}, 1), i32({1, 1}, {2})}, layer(2, 1, 1));
            }),
            "[braid.CombineTokens] node 'op': slot 2 is none of 2");
}

}  // namespace
}  // namespace braid::testing
