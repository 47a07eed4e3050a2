// What Assert, CheckNumerics and Print say.
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "tests/engine/ops/op_runner.h"

namespace braid::testing {
namespace {

std::string refusal(const std::string& op, std::vector<Tensor> inputs, AttrMap attrs = {}) {
  try {
    CaseGraph g = make_case_graph(OpRegistry::global().require(op),
                                  {.label = {}, .inputs = std::move(inputs), .attrs = std::move(attrs)});
    const ValueRef after = add_known(g.graph, "after", Tensor::scalar<std::int32_t>(0));
    g.graph.mutable_node(after.node).control_inputs.push_back(g.node);
    evaluate(g.graph, g.execution, {after});
  } catch (const InvalidArgument& error) {
    return error.message();
  }
  return "";
}

TEST(AssertTest, ShowsItsData) {
  const std::string words[] = {"x must be", "small:"};
  const Tensor text = Tensor::strings({2}, words);
  EXPECT_EQ(refusal("Assert", {bools({}, {true}), text}), "");
  EXPECT_EQ(refusal("Assert", {bools({}, {false}), text, f32({4}, {1, 2.5F, 3, 4}), bools({}, {true})}),
            "[Assert] node 'op': assertion failed: [x must be small:][1 2.5 3...][1]");
  EXPECT_EQ(refusal("Assert", {bools({}, {false}), axes({1, 2, 3, 4})}, {{"summarize", -1}}),
            "[Assert] node 'op': assertion failed: [1 2 3 4]");
}

TEST(CheckNumericsTest, NamesTheElementAndTheMessage) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(refusal("CheckNumerics", {f64({2}, {1, 2})}, {{"message", "loss"}}), "");
  EXPECT_EQ(refusal("CheckNumerics", {f64({3}, {1, inf, 2})}, {{"message", "loss"}}),
            "[CheckNumerics] node 'op': loss : element 1 is infinite");
  EXPECT_EQ(
      refusal("CheckNumerics", {f64({1}, {std::numeric_limits<double>::quiet_NaN()})}, {{"message", "loss"}}),
      "[CheckNumerics] node 'op': loss : element 0 is NaN");
}

TEST(PrintTest, WritesTheMessageAndTheDataAndPassesTheValueOn) {
  ::testing::internal::CaptureStderr();
  const Tensor y = run_op("Print", {f32({2}, {3, 4}), axes({7, 8, 9, 10})}, {{"message", "here: "}})[0];
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "here: [7 8 9...]\n");
  EXPECT_EQ(to_doubles(y), (std::vector<double>{3, 4}));
}

}  // namespace
}  // namespace braid::testing
