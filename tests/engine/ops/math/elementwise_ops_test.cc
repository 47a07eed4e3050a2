// Values of elementwise ops against the C library and against TensorFlow's documented rules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/engine/ops/op_runner.h"

namespace braid::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

template <class T>
std::vector<T> values_of(const Tensor& t) {
  return {t.data<T>().begin(), t.data<T>().end()};
}

struct Reference {
  const char* op;
  double low, high;
  double (*function)(double);
};

const Reference kReferences[] = {
    {"Exp", -100, 88, [](double x) { return std::exp(x); }},
    {"Expm1", -20, 80, [](double x) { return std::expm1(x); }},
    {"Log", 1e-30, 1e30, [](double x) { return std::log(x); }},
    {"Log", 0.9, 1.1, [](double x) { return std::log(x); }},
    {"Log1p", -0.999, 10, [](double x) { return std::log1p(x); }},
    {"Log1p", -1e-6, 1e-6, [](double x) { return std::log1p(x); }},
    {"Expm1", -1e-5, 1e-5, [](double x) { return std::expm1(x); }},
    {"Tanh", -12, 12, [](double x) { return std::tanh(x); }},
    {"Tanh", -1e-4, 1e-4, [](double x) { return std::tanh(x); }},
    {"Sigmoid", -80, 80, [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"Erf", -5, 5, [](double x) { return std::erf(x); }},
    {"Sin", -10, 10, [](double x) { return std::sin(x); }},
    {"Cos", -10, 10, [](double x) { return std::cos(x); }},
    {"Sqrt", 0, 100, [](double x) { return std::sqrt(x); }},
    {"Rsqrt", 0.01, 100, [](double x) { return 1 / std::sqrt(x); }},
    {"Softplus", -60, 60, [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }},
    {"Softsign", -5, 5, [](double x) { return x / (1 + std::abs(x)); }},
    {"Elu", -10, 10, [](double x) { return x < 0 ? std::expm1(x) : x; }},
    {"Selu", -10, 10,
     [](double x) { return 1.0507009873554805 * (x < 0 ? 1.6732632423543772 * std::expm1(x) : x); }},
    {"Tan", -1.5, 1.5, [](double x) { return std::tan(x); }},
    {"Asin", -1, 1, [](double x) { return std::asin(x); }},
    {"Acos", -1, 1, [](double x) { return std::acos(x); }},
    {"Atan", -50, 50, [](double x) { return std::atan(x); }},
    {"Sinh", -20, 20, [](double x) { return std::sinh(x); }},
    {"Cosh", -20, 20, [](double x) { return std::cosh(x); }},
    {"Asinh", -50, 50, [](double x) { return std::asinh(x); }},
    {"Acosh", 1, 50, [](double x) { return std::acosh(x); }},
    {"Atanh", -0.99, 0.99, [](double x) { return std::atanh(x); }},
    {"Erfc", -3, 3, [](double x) { return std::erfc(x); }},
    {"Lgamma", 3, 50, [](double x) { return std::lgamma(x); }},
    {"Rint", -10, 10, [](double x) { return std::nearbyint(x); }},
};

TEST(ElementwiseOps, Float32IsWithinAFewUnitsInTheLastPlace) {
  for (const Reference& r : kReferences) {
    const Tensor x = converted(random_f64({20001}, 3, r.low, r.high), DType::Float32);
    const Tensor y = run_op(r.op, {x})[0];
    for (std::size_t i = 0; i < 20001; ++i) {
      const double expected = r.function(static_cast<double>(x.data<float>()[i]));
      const double actual = y.data<float>()[i];
      ASSERT_LE(std::abs(actual - expected), 5e-7 * std::abs(expected) + 2e-38)
          << r.op << " of " << x.data<float>()[i] << " is " << actual << ", expected " << expected;
    }
  }
}

TEST(ElementwiseOps, SpecialValuesFollowTheMathematics) {
  const Tensor x = f32({5}, {-kInfinity, -1, 0, kInfinity, kNotANumber});
  const auto unary = [&](const char* op) { return values_of<float>(run_op(op, {x})[0]); };
  const auto nan = ::testing::IsNan();
  EXPECT_THAT(unary("Exp"), ElementsAre(0, ::testing::FloatEq(0.36787945F), 1, kInfinity, nan));
  EXPECT_THAT(unary("Log"), ElementsAre(nan, nan, -kInfinity, kInfinity, nan));
  EXPECT_THAT(unary("Log1p"), ElementsAre(nan, -kInfinity, 0, kInfinity, nan));
  EXPECT_THAT(unary("Expm1"), ElementsAre(-1, ::testing::FloatEq(-0.63212055F), 0, kInfinity, nan));
  EXPECT_THAT(unary("Tanh"), ElementsAre(-1, ::testing::FloatEq(-0.7615942F), 0, 1, nan));
  EXPECT_THAT(unary("Sigmoid"), ElementsAre(0, ::testing::FloatEq(0.26894143F), 0.5F, 1, nan));
  EXPECT_THAT(unary("Relu"), ElementsAre(0, 0, 0, kInfinity, nan));
  EXPECT_THAT(unary("Sign"), ElementsAre(-1, -1, 0, 1, nan));
  EXPECT_THAT(unary("Abs"), ElementsAre(kInfinity, 1, 0, kInfinity, nan));
  EXPECT_THAT(values_of<bool>(run_op("IsNan", {x})[0]), ElementsAre(false, false, false, false, true));
  EXPECT_THAT(values_of<bool>(run_op("IsInf", {x})[0]), ElementsAre(true, false, false, true, false));
  EXPECT_THAT(values_of<bool>(run_op("IsFinite", {x})[0]), ElementsAre(false, true, true, false, false));
}

TEST(ElementwiseOps, NoGradientStaysNoneAtInfiniteSlopes) {
  const Tensor y = f32({4}, {0, kInfinity, 0, 2}), dy = f32({4}, {0, 0, 1, 1});
  EXPECT_THAT(values_of<float>(run_op("SqrtGrad", {y, dy})[0]), ElementsAre(0, 0, kInfinity, 0.25F));
  EXPECT_THAT(values_of<float>(run_op("RsqrtGrad", {y, dy})[0]), ElementsAre(0, 0, 0, -4));
  EXPECT_THAT(values_of<float>(run_op("ReciprocalGrad", {y, dy})[0]), ElementsAre(0, 0, 0, -4));
}

TEST(ElementwiseOps, RoundGoesToEven) {
  const Tensor x = f32({6}, {-2.5F, -1.5F, -0.5F, 0.5F, 1.5F, 2.5F});
  for (const char* op : {"Round", "Rint"})
    EXPECT_THAT(values_of<float>(run_op(op, {x})[0]), ElementsAre(-2, -2, 0, 0, 2, 2));
  EXPECT_THAT(values_of<float>(run_op("Floor", {x})[0]), ElementsAre(-3, -2, -1, 0, 1, 2));
  EXPECT_THAT(values_of<float>(run_op("Ceil", {x})[0]), ElementsAre(-2, -1, 0, 1, 2, 3));
}

TEST(ElementwiseOps, RoundLeavesIntegersAsTheyAre) {
  EXPECT_THAT(values_of<std::int32_t>(run_op("Round", {i32({2}, {-7, 8})})[0]), ElementsAre(-7, 8));
}

TEST(ElementwiseOps, DivisionsRoundAsTensorFlows) {
  const Tensor a = i32({4}, {7, -7, 7, -7}), b = i32({4}, {2, 2, -2, -2});
  EXPECT_THAT(values_of<std::int32_t>(run_op("Div", {a, b})[0]), ElementsAre(3, -3, -3, 3));
  EXPECT_THAT(values_of<std::int32_t>(run_op("FloorDiv", {a, b})[0]), ElementsAre(3, -4, -4, 3));
  EXPECT_THAT(values_of<std::int32_t>(run_op("FloorMod", {a, b})[0]), ElementsAre(1, 1, -1, -1));
  const Tensor x = converted(a, DType::Float32), y = converted(b, DType::Float32);
  EXPECT_THAT(values_of<float>(run_op("FloorDiv", {x, y})[0]), ElementsAre(3, -4, -4, 3));
  EXPECT_THAT(values_of<float>(run_op("FloorMod", {x, y})[0]), ElementsAre(1, 1, -1, -1));
}

TEST(ElementwiseOps, TruncationGoesTowardsZero) {
  const Tensor a = i32({4}, {7, -7, 7, -7}), b = i32({4}, {2, 2, -2, -2});
  EXPECT_THAT(values_of<std::int32_t>(run_op("TruncateDiv", {a, b})[0]), ElementsAre(3, -3, -3, 3));
  EXPECT_THAT(values_of<std::int32_t>(run_op("TruncateMod", {a, b})[0]), ElementsAre(1, -1, 1, -1));
  const Tensor x = f32({2}, {7.5F, -7.5F}), y = f32({}, {2});
  EXPECT_THAT(values_of<float>(run_op("Mod", {x, y})[0]), ElementsAre(1.5F, -1.5F));
  EXPECT_THAT(values_of<float>(run_op("TruncateDiv", {x, y})[0]), ElementsAre(3, -3));
}

TEST(ElementwiseOps, ZeroTimesAnythingIsZeroInTheXOps) {
  const Tensor a = f32({3}, {0, 0, 2}), b = f32({3}, {0, kNotANumber, 1});
  EXPECT_THAT(values_of<float>(run_op("Xdivy", {a, b})[0]), ElementsAre(0, 0, 2));
  EXPECT_THAT(values_of<float>(run_op("Xlogy", {a, b})[0]), ElementsAre(0, 0, 0));
  EXPECT_THAT(values_of<float>(run_op("Xlog1py", {a, b})[0]),
              ElementsAre(0, 0, ::testing::FloatEq(1.3862944F)));
  EXPECT_THAT(values_of<float>(run_op("MulNoNan", {f32({2}, {kInfinity, 3}), f32({2}, {0, 2})})[0]),
              ElementsAre(0, 6));
}

TEST(ElementwiseOps, BitwiseOpsWorkOnTwosComplement) {
  const Tensor a = i32({2}, {-4, 12}), b = i32({2}, {7, 10});
  EXPECT_THAT(values_of<std::int32_t>(run_op("BitwiseAnd", {a, b})[0]), ElementsAre(4, 8));
  EXPECT_THAT(values_of<std::int32_t>(run_op("BitwiseOr", {a, b})[0]), ElementsAre(-1, 14));
  EXPECT_THAT(values_of<std::int32_t>(run_op("BitwiseXor", {a, b})[0]), ElementsAre(-5, 6));
  EXPECT_THAT(values_of<std::int32_t>(run_op("Invert", {a})[0]), ElementsAre(3, -13));
}

TEST(ElementwiseOps, ShiftsKeepTheSignAndStopAtTheWidth) {
  const Tensor a = i32({4}, {-8, 5, 5, -1}), b = i32({4}, {1, 2, -3, 40});
  EXPECT_THAT(values_of<std::int32_t>(run_op("LeftShift", {a, b})[0]),
              ElementsAre(-16, 20, 5, std::numeric_limits<std::int32_t>::min()));
  EXPECT_THAT(values_of<std::int32_t>(run_op("RightShift", {a, b})[0]), ElementsAre(-4, 1, 5, -1));
}

TEST(ElementwiseOps, IntegersWrapAndNeverTrap) {
  constexpr std::int32_t kMin = std::numeric_limits<std::int32_t>::min();
  constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();
  const Tensor min = i32({1}, {kMin}), minus_one = i32({1}, {-1});
  EXPECT_THAT(values_of<std::int32_t>(run_op("Div", {min, minus_one})[0]), ElementsAre(kMin));
  EXPECT_THAT(values_of<std::int32_t>(run_op("FloorMod", {min, minus_one})[0]), ElementsAre(0));
  EXPECT_THAT(values_of<std::int32_t>(run_op("Neg", {min})[0]), ElementsAre(kMin));
  EXPECT_THAT(values_of<std::int32_t>(run_op("AddV2", {i32({1}, {kMax}), i32({1}, {1})})[0]),
              ElementsAre(kMin));
  EXPECT_THAT(values_of<std::int64_t>(run_op("Pow", {i64({2}, {3, -2}), i64({2}, {5, 3})})[0]),
              ElementsAre(243, -8));
}

TEST(ElementwiseOps, WhatHasNoResultIsRefused) {
  EXPECT_THAT(refusal("Div", {i32({1}, {1}), i32({1}, {0})}), HasSubstr("integer division by zero"));
  EXPECT_THAT(refusal("Pow", {i32({1}, {2}), i32({1}, {-1})}), HasSubstr("negative integer powers"));
  EXPECT_THAT(refusal("AddV2", {f32({2}, {1, 2}), f32({3}, {1, 2, 3})}),
              "[AddV2] node 'op': inputs 0 and 1 do not broadcast: [2] and [3]");
  EXPECT_THAT(refusal("AddV2", {f32({1}, {1}), f64({1}, {1})}),
              "[AddV2] node 'op': inputs 0 and 1 must have one type, got float32 and float64");
  EXPECT_THAT(refusal("Exp", {i32({1}, {1})}), "[Exp] node 'op': does not take int32");
}

TEST(ElementwiseOps, MaximumAndMinimumPassNanOn) {
  const Tensor a = f32({3}, {kNotANumber, 1, 2}), b = f32({3}, {1, kNotANumber, 3});
  EXPECT_THAT(values_of<float>(run_op("Maximum", {a, b})[0]),
              ElementsAre(::testing::IsNan(), ::testing::IsNan(), 3));
  EXPECT_THAT(values_of<float>(run_op("Minimum", {a, b})[0]),
              ElementsAre(::testing::IsNan(), ::testing::IsNan(), 2));
}

TEST(ElementwiseOps, DivNoNanGivesZeroForZeroDivisors) {
  EXPECT_THAT(values_of<float>(run_op("DivNoNan", {f32({3}, {1, 0, 6}), f32({3}, {0, 0, 3})})[0]),
              ElementsAre(0, 0, 2));
}

/// y[i] by NumPy's rule, one element at a time.
std::vector<double> broadcast_sum(const Tensor& a, const Tensor& b, const Shape& out) {
  const auto at = [&](const Tensor& t, std::int64_t flat) {
    std::int64_t offset = 0, stride = 1;
    for (int axis = out.rank() - 1; axis >= 0; --axis) {
      const int own = axis - (out.rank() - t.shape().rank());
      const std::int64_t index = flat % out[axis];
      flat /= out[axis];
      if (own < 0) continue;
      offset += t.shape()[own] == 1 ? 0 : index * stride;
      stride *= t.shape()[own];
    }
    return t.data<double>()[static_cast<std::size_t>(offset)];
  };
  std::vector<double> y;
  for (std::int64_t i = 0; i < out.elements(); ++i) y.push_back(at(a, i) + 10 * at(b, i));
  return y;
}

TEST(ElementwiseOps, BroadcastingFollowsNumPyForManyShapes) {
  const std::vector<std::pair<Shape, Shape>> pairs = {{{2, 3, 4}, {4}},
                                                      {{2, 3, 4}, {3, 1}},
                                                      {{2, 3, 4}, {2, 1, 1}},
                                                      {{2, 1, 4}, {3, 1}},
                                                      {{1, 3, 1}, {2, 1, 4}},
                                                      {{5, 1, 3, 1}, {2, 1, 4}},
                                                      {{1}, {2, 3}},
                                                      {{2, 1, 3, 1, 2}, {4, 1, 5, 1}},
                                                      {{70, 1, 900}, {1, 3, 1}},
                                                      {{1, 1}, {1}},
                                                      {{3, 40000}, {3, 1}},
                                                      {{2, 3, 4, 5}, {2, 1, 4, 1}}};
  for (const auto& [sa, sb] : pairs) {
    const Tensor a = random_f64(sa, 1), b = random_f64(sb, 2);
    const Tensor ten = run_op("Mul", {b, f64({}, {10})})[0];
    const Tensor y = run_op("AddV2", {a, ten})[0];
    EXPECT_EQ(values_of<double>(y), broadcast_sum(a, b, y.shape()))
        << sa.to_string() << " and " << sb.to_string();
    const Tensor mirrored = run_op("AddV2", {ten, a})[0];
    EXPECT_EQ(values_of<double>(mirrored), values_of<double>(y));
  }
}

TEST(ElementwiseOps, CastSaturatesWhatDoesNotFit) {
  const Tensor x = f32({6}, {-1.9F, 1.9F, 3e9F, -3e9F, kNotANumber, kInfinity});
  EXPECT_THAT(values_of<std::int32_t>(run_op("Cast", {x}, {{"DstT", DType::Int32}})[0]),
              ElementsAre(-1, 1, 2147483647, -2147483648LL, 0, 2147483647));
  EXPECT_THAT(values_of<std::uint8_t>(run_op("Cast", {x}, {{"DstT", DType::UInt8}})[0]),
              ElementsAre(0, 1, 255, 0, 0, 255));
  EXPECT_THAT(values_of<bool>(run_op("Cast", {f32({3}, {0, -0.5F, 2})}, {{"DstT", DType::Bool}})[0]),
              ElementsAre(false, true, true));
  EXPECT_THAT(refusal("Cast", {x}, {{"DstT", DType::String}}), "[Cast] node 'op': does not convert string");
}

/// The nearest of all values_of that a half has, and of two equally near ones the one whose last bit is 0.
std::uint16_t nearest_half(float x, float (*value)(std::uint16_t)) {
  std::uint16_t best = 0;
  double distance = kInfinity;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float candidate = value(static_cast<std::uint16_t>(bits));
    if (!std::isfinite(candidate) || std::signbit(candidate) != std::signbit(x)) continue;
    const double d = std::abs(static_cast<double>(candidate) - static_cast<double>(x));
    if (d > distance || (d == distance && (bits & 1U) != 0)) continue;
    distance = d;
    best = static_cast<std::uint16_t>(bits);
  }
  return best;
}

float value_of_float16(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent == 31) return kNotANumber;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return static_cast<float>((bits & 0x8000) != 0 ? -magnitude : magnitude);
}

float value_of_bfloat16(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

TEST(ElementwiseOps, CastToHalvesRoundsToTheNearest) {
  const Tensor x = f32({12}, {0.1F, -3.14159F, 65504, 6.1e-5F, 6e-8F, -2.9e-8F, 1.00048828125F, 2049, 2051, 0,
                              1e-3F, -40000.5F});
  for (const auto& [dtype, value] :
       {std::pair{DType::Float16, &value_of_float16}, {DType::BFloat16, &value_of_bfloat16}}) {
    const Tensor y = run_op("Cast", {x}, {{"DstT", dtype}})[0];
    const Tensor back = run_op("Cast", {y}, {{"DstT", DType::Float32}})[0];
    for (std::size_t i = 0; i < 12; ++i) {
      const auto bits = reinterpret_cast<const std::uint16_t*>(y.raw())[i];
      EXPECT_EQ(bits, nearest_half(x.data<float>()[i], value))
          << dtype_name(dtype) << " of " << x.data<float>()[i];
      EXPECT_EQ(back.data<float>()[i], value(bits));
    }
  }
  const Tensor specials = f32({4}, {kInfinity, -kInfinity, 65520, kNotANumber});
  const Tensor half = run_op("Cast", {specials}, {{"DstT", DType::Float16}})[0];
  EXPECT_THAT(values_of<float>(run_op("Cast", {half}, {{"DstT", DType::Float32}})[0]),
              ElementsAre(kInfinity, -kInfinity, kInfinity, ::testing::IsNan()));
  EXPECT_THAT(values_of<std::int32_t>(run_op("Cast", {half}, {{"DstT", DType::Int32}})[0]),
              ElementsAre(2147483647, -2147483648LL, 2147483647, 0));
}

TEST(ElementwiseOps, SelectTakesRowsByAVector) {
  const Tensor a = f32({2, 2}, {1, 2, 3, 4}), b = f32({2, 2}, {5, 6, 7, 8});
  EXPECT_THAT(values_of<float>(run_op("Select", {bools({2}, {true, false}), a, b})[0]),
              ElementsAre(1, 2, 7, 8));
  EXPECT_THAT(values_of<float>(run_op("SelectV2", {bools({2}, {true, false}), a, b})[0]),
              ElementsAre(1, 6, 3, 8));
}

TEST(ElementwiseOps, ClipKeepsNanAndBounds) {
  EXPECT_THAT(values_of<float>(run_op(
                  "ClipByValue", {f32({4}, {-2, 0.5F, 2, kNotANumber}), f32({}, {-1}), f32({}, {1})})[0]),
              ElementsAre(-1, 0.5F, 1, ::testing::IsNan()));
  EXPECT_THAT(
      values_of<float>(run_op("ClipByValue", {f32({3}, {-2, 1.5F, 5}), f32({}, {2}), f32({}, {1})})[0]),
      ElementsAre(2, 2, 2));  // the lower bound has the last word
}

TEST(ElementwiseOps, AddNAddsInOrder) {
  // 2^24 + 1 is not a float32: the order of additions shows in the result.
  const Tensor big = f32({1}, {16777216.0F}), one = f32({1}, {1});
  EXPECT_THAT(values_of<float>(run_op("AddN", {big, one, one})[0]), ElementsAre(16777216.0F));
  EXPECT_THAT(values_of<float>(run_op("AddN", {one, one, big})[0]), ElementsAre(16777218.0F));
}

TEST(SpecialFunctionsTest, GiveTensorFlowsValues) {
  const auto results = [](const std::string& op, const Tensor& x) {
    return values_of<double>(run_op(op, {x})[0]);
  };
  const auto near = [&](const std::string& op, const Tensor& x, const std::vector<double>& expected) {
    const std::vector<double> y = results(op, x);  // TensorFlow's Erfinv has ten digits
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(y[i], expected[i], 1e-10 * std::abs(expected[i])) << op << " of element " << i;
  };
  near("Digamma", f64({7}, {1, 2, 0.5, -0.5, 10, 1e-3, -20.3}),
       {-0.5772156649015323, 0.42278433509846747, -1.9635100260214227, 0.03648997397857645,
        2.2517525890667214, -1000.5755719318104, 5.31754992423975});
  near("Erfinv", f64({4}, {0.5, -0.99, 1e-5, 0.9999999}),
       {0.4769362762044699, -1.8213863677184496, 8.862269254817653e-06, 3.7665625817811264});
  near("Ndtri", f64({2}, {0.3, 1e-9}), {-0.5244005127080409, -5.9978070150076865});
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  for (const double y : results("Digamma", f64({4}, {0, -3, -inf, nan}))) EXPECT_TRUE(std::isnan(y));
  for (const char* op : {"Erfinv", "Ndtri"})
    for (const double y : results(op, f64({3}, {1.5, -1.5, nan}))) EXPECT_TRUE(std::isnan(y)) << op;
  EXPECT_EQ(results("Erfinv", f64({3}, {-1, 0, 1})), (std::vector<double>{-inf, 0, inf}));
  EXPECT_EQ(results("Ndtri", f64({3}, {0, 0.5, 1})), (std::vector<double>{-inf, 0, inf}));
}

}  // namespace
}  // namespace braid::testing
