#include "engine/exec/plan_report.h"

#include <gtest/gtest.h>

#include "tests/engine/testing/test_ops.h"

namespace braid::testing {
namespace {

TEST(PlanTest, TheReportHasStreamsTotalsAndTheCriticalPath) {
  TestGraph g;
  const ValueRef a = on(g, 0, {g.feed("x", 4)}, "a");
  on(g, 1, {a}, "b");
  const auto p = compile_test(g, {"b"}, {}, 2, StreamPolicy::User, 2, kX);
  const std::string text = plan_report(*p);
  for (const char* part : {"2 nodes on 2 compute streams", "1 waits issued, 0 removed", "critical path",
                           "compute1", "wait for 'a' on compute0", " us  test.Mix 'b'"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(PlanTest, TheHashTellsPlansApart) {
  TestGraph g;
  const ValueRef a = on(g, 0, {g.feed("x", 4)}, "a");
  on(g, 1, {a}, "b");
  const auto hash = [&](int streams, StreamPolicy policy) {
    return plan_hash(*compile_test(g, {"b"}, {}, streams, policy, 2, kX));
  };
  EXPECT_EQ(hash(2, StreamPolicy::User), hash(2, StreamPolicy::User));
  EXPECT_NE(hash(2, StreamPolicy::User), hash(2, StreamPolicy::None));
  EXPECT_NE(hash(2, StreamPolicy::User), hash(3, StreamPolicy::User));
}

}  // namespace
}  // namespace braid::testing
