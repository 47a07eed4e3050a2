// What an Instance promises: results, variables over steps, steps in flight, feeds that are checked.
#include "engine/exec/instance.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/engine/exec/test_ops.h"
#include "tests/engine/testing/interpreter.h"

namespace braid::testing {
namespace {

TEST(InstanceTest, AChainGivesWhatTheInterpreterGives) {
  TestGraph g;
  const ValueRef x = g.feed("x", 16), w = g.variable("w", 8);
  const ValueRef h = g.mix({x, g.read(w)}, 32);
  const ValueRef y = g.add("test.Change", {h, h}, {{"elements", std::int64_t{32}}}, "y");
  const ValueRef z = g.add("test.Change", {y}, {{"elements", std::int64_t{32}}}, "z");
  const ValueRef update = g.add("test.Update", {w, z});
  const auto program =
      compile_test(g, {"z"}, {g.name(update)}, 1, StreamPolicy::None, 2, {{"x", DType::Int64, Shape{16}}});

  Runtime runtime({});
  Instance instance(program, runtime);
  Interpreter oracle(g.graph);
  for (std::uint64_t step = 0; step < 5; ++step) {
    const Tensor feed = test_tensor(16, step);
    const StepResult result = instance.run(request(step, {feed}), soon());
    const auto expected = oracle.run({{"x", feed}}, {"z"}, {"^" + g.name(update)});
    EXPECT_EQ(result.step, step);
    ASSERT_EQ(result.fetches.size(), 1U);
    EXPECT_TRUE(same_bytes(result.fetches[0], expected[0])) << "step " << step;
    EXPECT_TRUE(same_bytes(*runtime.variables().find("w"), oracle.variables().at("w"))) << "step " << step;
  }
}

}  // namespace
}  // namespace braid::testing
