// Who waits for a write over nodes whose values are known still reads what was written.
#include <gtest/gtest.h>

#include "engine/graph/specialize.h"
#include "engine/import/import.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/interpreter.h"
#include "tests/engine/testing/test_ops.h"

namespace braid::testing {
namespace {

Tensor numbers(const std::vector<std::int64_t>& values) {
  return Tensor::from<std::int64_t>(Shape{static_cast<std::int64_t>(values.size())}, values);
}

class WriteOrderTest : public ::testing::Test {
 protected:
  WriteOrderTest() {
    handle = g.variable("v", 2);
    write = g.add("AssignVariableOp", {handle, g.feed("x", 2)}, {{"dtype", DType::Int64}}, "write");
  }

  /// A read that waits for `after`, and what a second run fetches of it: the value that its own step wrote.
  std::int64_t read_after(ValueRef after, const std::vector<std::string>& more = {}) {
    const ValueRef read = g.read(handle);
    g.control(after, read);
    g.add("Identity", {read}, {}, "last");
    std::vector<std::string> fetches = {"last"};
    fetches.insert(fetches.end(), more.begin(), more.end());
    const auto program =
        compile_test(g, fetches, {"write"}, 2, StreamPolicy::Full, 1, {{"x", DType::Int64, Shape{2}}});
    Runtime runtime({});
    Instance instance(program, runtime);
    set_random_delay_us(200);
    instance.run(request(0, {numbers({1, 1})}), soon());
    const StepResult result = instance.run(request(1, {numbers({7, 7})}), soon());
    set_random_delay_us(0);
    return result.fetches[0].data<std::int64_t>()[0];
  }

  TestGraph g;
  ValueRef handle, write;
};

TEST_F(WriteOrderTest, ThroughAFoldedNodeWithAControlInput) {
  const ValueRef folded = g.add("AddN", {g.constant({1, 2}), g.constant({3, 4})}, {}, "folded");
  g.control(write, folded);
  EXPECT_EQ(read_after(folded), 7);
}

TEST_F(WriteOrderTest, ThroughAConstantThatEqualsAnEarlierOne) {
  const ValueRef x{g.graph.find("x"), 0};
  g.add("Sub", {g.constant({1, 2}), x}, {}, "other");
  const ValueRef late = g.add("Identity", {g.constant({1, 2})}, {}, "late");
  g.control(write, late);
  const ValueRef again = g.add("Identity", {late}, {}, "again");
  EXPECT_EQ(read_after(g.add("Sub", {x, again}, {}, "user"), {"other"}), 7);
}

TEST_F(WriteOrderTest, ThroughTheShapeOfAReadThatWaits) {
  const ValueRef read = g.read(handle);
  g.control(write, read);
  const ValueRef shape = g.add("Shape", {read}, {{"out_type", DType::Int64}}, "shape");
  EXPECT_EQ(read_after(shape), 7);
}

TEST_F(WriteOrderTest, ThroughZerosLikeAReadThatWaits) {
  const ValueRef read = g.read(handle);
  g.control(write, read);
  EXPECT_EQ(read_after(g.mix({g.add("ZerosLike", {read}, {}, "zeros")}, 2, "user")), 7);
}

/// As gradients do behind an exchange: edges would keep passes from what stands there.
TEST_F(WriteOrderTest, WhoComputesWithWhatStandsBehindAWriteHasNoEdgeForItsShape) {
  const ValueRef sent =
      g.add("test.Exchange", {ValueRef{g.graph.find("x"), 0}}, {{"elements", 2}}, "exchange");
  const ValueRef product = g.mix({sent}, 2, "product");
  g.add("Identity", {g.add("braid.ReduceToShapeOf", {product, sent}, {}, "same")}, {}, "user");
  const auto program =
      compile_test(g, {"user"}, {}, 1, StreamPolicy::None, 1, {{"x", DType::Int64, Shape{2}}});
  EXPECT_LT(op_named(*program, "same"), 0) << "it does nothing for these shapes";
  EXPECT_GE(op_named(*program, "exchange"), 0);
}

TEST_F(WriteOrderTest, AFeedCutsIt) {
  const ValueRef cut = g.add("Identity", {g.constant({1, 2})}, {}, "cut");
  g.control(write, cut);
  const ValueRef user = g.mix({cut}, 2, "user");
  const auto program =
      compile_test(g, {"user"}, {}, 1, StreamPolicy::None, 1, {{"cut", DType::Int64, Shape{2}}});
  EXPECT_LT(op_named(*program, "write"), 0);
  EXPECT_TRUE(user.valid());
}

TEST_F(WriteOrderTest, SpecializingKeepsIt) {
  const ValueRef late = g.add("Identity", {g.feed("size", 1)}, {}, "late");
  g.control(write, late);
  const ValueRef filled =
      g.add("Fill",
            {late, g.add("Const", {}, {{"value", Tensor::scalar<std::int64_t>(3)}, {"dtype", DType::Int64}})},
            {{"index_type", DType::Int64}}, "filled");
  const ValueRef read = g.read(handle);
  g.control(filled, read);
  g.add("Identity", {read}, {}, "last");
  const std::map<std::string, Tensor> feeds = {{"x", numbers({7, 7})}, {"size", numbers({2})}};
  const Graph ready = specialize(g.graph, feeds, {"last", "filled"}, {});
  Interpreter interpreter(ready);
  EXPECT_EQ(interpreter.run(feeds, {"last", "filled"})[0].data<std::int64_t>()[0], 7);
}

}  // namespace
}  // namespace braid::testing
