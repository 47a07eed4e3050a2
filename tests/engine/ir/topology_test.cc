#include "engine/ir/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TopologicalOrder sort(const std::vector<std::vector<std::int32_t>>& before) {
  return sort_topologically(static_cast<std::int32_t>(before.size()),
                            [&](std::int32_t index, FunctionRef<void(std::int32_t)> visit) {
                              for (const std::int32_t p : before[static_cast<std::size_t>(index)]) visit(p);
                            });
}

TEST(TopologyTest, PredecessorsComeFirstAndTiesGoByIndex) {
  EXPECT_THAT(sort({{3}, {}, {1}, {}}).order, ElementsAre(1, 2, 3, 0));
  EXPECT_THAT(sort({}).order, IsEmpty());
  EXPECT_THAT(sort({{1, 1}, {}}).order, ElementsAre(1, 0));
}

TEST(TopologyTest, ACycleIsGivenWithoutWhatHangsOnIt) {
  const TopologicalOrder result = sort({{4}, {0, 3}, {1}, {2}, {}, {3}});
  EXPECT_THAT(result.order, ElementsAre(4, 0));
  EXPECT_THAT(result.cycle, ElementsAre(2, 3, 1));
}

TEST(TopologyTest, ANodeOnItselfIsACycle) { EXPECT_THAT(sort({{0}}).cycle, ElementsAre(0)); }

}  // namespace
}  // namespace braid
