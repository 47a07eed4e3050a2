// What Assert, CheckNumerics and Print say.
#include <gtest/gtest.h>

#include <limits>

#include "tests/engine/ops/op_runner.h"
#include "tests/support/message_of.h"

namespace braid::testing {
namespace {

std::string effect_refusal(const std::string& op, std::vector<Tensor> inputs, AttrMap attrs = {}) {
  return message_of([&] { run_effect(op, std::move(inputs), std::move(attrs)); });
}

TEST(AssertTest, ShowsItsData) {
  const Tensor data = text({"x must be", "small:"});
  EXPECT_EQ(effect_refusal("Assert", {bools({}, {true}), data}), "nothing was thrown");
  EXPECT_EQ(
      effect_refusal("Assert", {bools({}, {false}), data, f32({4}, {1, 2.5F, 3, 4}), bools({}, {true})}),
      "[Assert] node 'op': assertion failed: [x must be small:][1 2.5 3...][1]");
  EXPECT_EQ(effect_refusal("Assert", {bools({}, {false}), axes({1, 2, 3, 4})}, {{"summarize", -1}}),
            "[Assert] node 'op': assertion failed: [1 2 3 4]");
}

TEST(CheckNumericsTest, NamesTheElementAndTheMessage) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(effect_refusal("CheckNumerics", {f64({2}, {1, 2})}, {{"message", "loss"}}), "nothing was thrown");
  EXPECT_EQ(effect_refusal("CheckNumerics", {f64({3}, {1, inf, 2})}, {{"message", "loss"}}),
            "[CheckNumerics] node 'op': loss : element 1 is infinite");
  EXPECT_EQ(effect_refusal("CheckNumerics", {f64({1}, {std::numeric_limits<double>::quiet_NaN()})},
                           {{"message", "loss"}}),
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
