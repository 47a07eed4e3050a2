// The language of elementwise formulas: values, precedence, and what parse() refuses.
#include "engine/ir/formula.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "tests/support/message_of.h"

namespace braid::testing {
namespace {

double value(std::string_view formula, std::vector<double> operands = {}, double result = 0) {
  return Expression::parse(formula).evaluate(operands, {{"alpha", 0.25}}, result);
}

TEST(FormulaTest, OperatorsBindAsInC) {
  EXPECT_EQ(value("1 + 2 * 3"), 7);
  EXPECT_EQ(value("(1 + 2) * 3"), 9);
  EXPECT_EQ(value("10 - 4 - 3"), 3);
  EXPECT_EQ(value("8 / 4 / 2"), 1);
  EXPECT_EQ(value("-a * b", {2, 3}), -6);
  EXPECT_EQ(value("1 < 2 && 3 < 2 || 1 == 1"), 1);
  EXPECT_EQ(value("!a", {0}), 1);
  EXPECT_EQ(value("a < 0 ? 1 : a > 6 ? 2 : 3", {7}), 2);
  EXPECT_EQ(value("1.5e1 - 0.5"), 14.5);
}

TEST(FormulaTest, NamesAreOperandsResultAttributesAndFunctions) {
  EXPECT_EQ(value("a - 2 * b + c * d", {1, 2, 3, 4}), 9);
  EXPECT_EQ(value("y * (1 - y)", {}, 0.25), 0.1875);
  EXPECT_EQ(value("alpha * a", {8}), 2);
  EXPECT_DOUBLE_EQ(value("a * sigmoid(a)", {1.5}), 1.5 / (1 + std::exp(-1.5)));
  EXPECT_EQ(value("max(a, min(b, c))", {1, 5, 3}), 3);
}

TEST(FormulaTest, OnlyTheChosenBranchCounts) {
  EXPECT_EQ(value("b == 0 ? 0 : a / b", {1, 0}), 0);
  EXPECT_TRUE(std::isnan(value("a < 0 ? 0 : a", {std::numeric_limits<double>::quiet_NaN()})));
}

TEST(FormulaTest, TermsStandInAnOrderOfEvaluation) {
  const Expression formula = Expression::parse("a * sigmoid(b) + alpha");
  EXPECT_EQ(formula.operands(), 2);
  for (std::size_t i = 0; i < formula.terms().size(); ++i)
    for (const int argument : formula.terms()[i].arguments) EXPECT_LT(argument, static_cast<int>(i));
  EXPECT_EQ(formula.terms().back().name, "+");
}

TEST(FormulaTest, WhatIsWrongIsSaidWithItsPlace) {
  const auto refusal = [](std::string_view text) {
    return message_of<Internal>([&] { Expression::parse(text); });
  };
  EXPECT_EQ(refusal("a +"), "formula 'a +': an operand is missing at 3");
  EXPECT_EQ(refusal("a b"), "formula 'a b': it should end at 2");
  EXPECT_EQ(refusal("(a"), "formula '(a': ')' is missing at 2");
  EXPECT_EQ(refusal("cube(a)"), "formula 'cube(a)': there is no function 'cube' at 5");
  EXPECT_EQ(refusal("exp(a, b)"), "formula 'exp(a, b)': exp() takes 1 arguments at 9");
  EXPECT_EQ(refusal("a ? b"), "formula 'a ? b': ':' is missing at 5");
  EXPECT_EQ(message_of<Internal>([] { value("beta * a", {1}); }), "no value for attribute 'beta'");
}

}  // namespace
}  // namespace braid::testing
