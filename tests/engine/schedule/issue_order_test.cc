// In which order one stream is given its nodes.
#include <gtest/gtest.h>

#include "tests/engine/testing/test_ops.h"

namespace braid::testing {
namespace {

TEST(IssueOrderTest, APushIsIssuedWhenItsGradientIsReadyNotBehindOneThatIsReadyLater) {
  TestGraph g;
  const ValueRef x = g.feed("x", 4), early = g.mix({x}, 4, "early");
  ValueRef late = x;
  for (int i = 0; i < 3; ++i) late = g.mix({late}, 4, "late" + std::to_string(i));
  g.add("test.Push", {late}, {}, "push_late");
  g.add("test.Push", {early}, {}, "push_early");
  const auto p = compile_test(g, {}, {"push_late", "push_early"}, 1, StreamPolicy::None, 1, kX);
  EXPECT_LT(op_named(*p, "push_early"), op_named(*p, "late2")) << "sent while the rest is computed";
  EXPECT_LT(op_named(*p, "push_early"), op_named(*p, "push_late"));
}

TEST(IssueOrderTest, OtherWorkComesBeforeWhatALaneHasYetToBring) {
  TestGraph g;
  const ValueRef x = g.feed("x", 4);
  const ValueRef pulled = g.add("test.Pull", {x}, {{"elements", 400000}}, "pull");
  ValueRef needs = pulled;
  for (int i = 0; i < 6; ++i) needs = g.mix({needs}, 4, "needs" + std::to_string(i));
  ValueRef other = x;
  for (int i = 0; i < 3; ++i) other = g.mix({other}, 4, "other" + std::to_string(i));
  const ValueRef end = g.mix({needs, other}, 4, "end");
  const auto p = compile_test(g, {g.name(end)}, {}, 1, StreamPolicy::None, 1, kX);
  EXPECT_LT(op_named(*p, "other0"), op_named(*p, "needs0")) << "computed while the lane brings the other's";
}

TEST(IssueOrderTest, OnOneStreamWhatPassesAddRunsWhereItIsNeeded) {
  TestGraph g;
  const ValueRef x = g.feed("x", 4);
  const ValueRef gradient = g.mix({x}, 8, "gradient"), other = g.mix({x}, 8, "other");
  const ValueRef user = g.mix({other}, 8, "user"), beside = g.mix({x}, 8, "beside");
  const ValueRef end = g.mix({user, beside}, 8, "end");
  const ValueRef source = g.mix({}, 8, "source");  // written last, as a pass does
  g.node(user).inputs.push_back(source);
  g.add("test.Update", {g.variable("w", 8), gradient}, {}, "update");
  const auto p = compile_test(g, {g.name(end)}, {"update"}, 1, StreamPolicy::None, 1, kX);
  const auto at = [&](const char* name) { return op_named(*p, name); };
  EXPECT_EQ(at("update"), at("gradient") + 1);
  EXPECT_EQ(at("user"), at("source") + 1);
  EXPECT_LT(at("user"), at("beside"));
}

}  // namespace
}  // namespace braid::testing
