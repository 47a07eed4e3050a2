#include "engine/exec/program_cache.h"

#include <gtest/gtest.h>

#include "tests/engine/testing/interpreter.h"
#include "tests/engine/testing/test_ops.h"

namespace braid::testing {
namespace {

TEST(ProgramCacheTest, OneProgramForEachSignatureAndTheOldestGoes) {
  TestGraph g;
  const ValueRef x = g.add("Placeholder", {}, {{"dtype", DType::Int64}, {"shape", Shape{-1}}}, "x");
  const ValueRef w = g.variable("w", 4);
  g.add("test.Update", {w, x}, {}, "update");
  Runtime runtime({});
  ProgramCache cache(g.graph, {}, {"update"}, CompileOptions{}, runtime, 2);
  const auto feeds = [](std::int64_t n) { return std::vector<FeedSpec>{{"x", DType::Int64, Shape{n}}}; };
  const auto run = [&](std::int64_t n) {
    cache.instance(feeds(n))->run(request(0, {test_tensor(n, 1)}), soon());
  };
  for (const std::int64_t n : {8, 8, 3, 8, 3}) run(n);
  EXPECT_EQ(cache.compiled(), 2U);
  const auto held = cache.instance(feeds(3));
  run(5);  // 8 goes
  EXPECT_EQ(cache.size(), 2U);
  EXPECT_EQ(cache.instance(feeds(3)), held);
  run(8);
  EXPECT_EQ(cache.compiled(), 4U);

  // All of them have changed the one variable.
  Interpreter oracle(g.graph);
  for (const std::int64_t n : {8, 8, 3, 8, 3, 5, 8}) oracle.run({{"x", test_tensor(n, 1)}}, {}, {"update"});
  EXPECT_TRUE(same_bytes(*runtime.variables().find("w"), oracle.variables().at("w")));
}

}  // namespace
}  // namespace braid::testing
