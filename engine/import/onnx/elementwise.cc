// Operators that compute each element by itself: with one input, with two that broadcast, with any number.
#include <cmath>
#include <limits>
#include <numbers>

#include "base/error.h"
#include "engine/import/onnx/node.h"
#include "engine/import/onnx/parameters.h"
#include "engine/import/onnx/unsigned.h"

namespace braid::onnx {
namespace {

template <const char* kOp>
void unary(OnnxNode& n) {
  n.out(0, tf(kOp, {n.in(0)}));
}

/// Up to operator set 6 the second input is aligned by attributes, from 7 on as NumPy does.
Val aligned_second(OnnxNode& n) {
  const Val a = n.in(0), b = n.in(1);
  if (n.opset >= 7 || !n.has_attr("axis") || n.i("broadcast", 0) == 0) return b;
  const int after = a.rank() - positive_axis(n.i("axis", 0), a.rank()) - b.rank();
  Ints shape(b.shape().dims().begin(), b.shape().dims().end());
  shape.insert(shape.end(), static_cast<std::size_t>(std::max(after, 0)), 1);
  return reshape(b, shape);
}

template <const char* kOp>
void binary(OnnxNode& n) {
  n.out(0, binary_any(kOp, n.in(0), aligned_second(n)));
}

void divide(OnnxNode& n) {
  const Val a = n.in(0), b = aligned_second(n);
  n.out(0, is_floating(a.dtype()) ? a / b : binary_any("Div", a, b));
}

void modulo(OnnxNode& n) {
  const Val a = n.in(0), b = n.in(1);
  n.out(0, binary_any(n.i("fmod", 0) != 0 ? "TruncateMod" : "FloorMod", a, b));
}

void power(OnnxNode& n) {
  const Val a = n.in(0), b = aligned_second(n);
  if (a.dtype() == b.dtype()) return n.out(0, tf("Pow", {a, b}));
  if (is_floating(a.dtype())) return n.out(0, tf("Pow", {a, cast(b, a.dtype())}));
  const DType wide = is_floating(b.dtype()) ? DType::Float64 : DType::Int64;
  n.out(0, cast(tf("Pow", {cast(a, wide), cast(b, wide)}), a.dtype()));
}

void logical_xor(OnnxNode& n) { n.out(0, tf("NotEqual", {n.in(0), aligned_second(n)})); }

void bit_shift(OnnxNode& n) { n.out(0, shift(n.in(0), n.in(1), n.s("direction", "") == "LEFT")); }

template <const char* kOp>
void variadic(OnnxNode& n) {
  Val result = n.in(0);
  for (int i = 1; i < n.inputs(); ++i) result = binary_any(kOp, result, n.in(i));
  n.out(0, result);
}

void mean(OnnxNode& n) {
  Val sum = n.in(0);
  for (int i = 1; i < n.inputs(); ++i) sum = sum + n.in(i);
  n.out(0, sum / static_cast<double>(n.inputs()));
}

void is_inf(OnnxNode& n) {
  const Val x = n.in(0), inf = tf("IsInf", {x}), zero = like(0, x);
  if (n.i("detect_negative", 1) == 0) return n.out(0, tf("LogicalAnd", {inf, tf("Greater", {x, zero})}));
  if (n.i("detect_positive", 1) == 0) return n.out(0, tf("LogicalAnd", {inf, tf("Less", {x, zero})}));
  n.out(0, inf);
}

// -------------------------------------------------------------------------------------------------
// activations

void leaky_relu(OnnxNode& n) { n.out(0, tf("LeakyRelu", {n.in(0)}, {{"alpha", n.f("alpha", 0.01)}})); }

void prelu(OnnxNode& n) {
  const Val x = n.in(0);
  Val slope = n.in(1);
  // Up to operator set 6 one slope a channel, or one for all.
  if (n.opset < 7 && slope.rank() == 1 && slope.dim(0) != 1 && x.rank() > 1) {
    Ints shape(static_cast<std::size_t>(x.rank()) - 1, 1);
    shape[0] = -1;
    slope = reshape(slope, shape);
  }
  n.out(0, where(tf("Less", {x, like(0, x)}), x * slope, x));
}

/// alpha (e^x - 1) below zero.
Val elu(Val x, double alpha) {
  if (alpha == 1) return tf("Elu", {x});
  return where(tf("Less", {x, like(0, x)}), tf("Expm1", {x}) * alpha, x);
}

void elu_op(OnnxNode& n) { n.out(0, elu(n.in(0), n.f("alpha", 1))); }

void celu(OnnxNode& n) {
  const Val x = n.in(0);
  const double alpha = n.f("alpha", 1);
  n.out(0, maximum(x, like(0, x)) + minimum(tf("Expm1", {x / alpha}) * alpha, like(0, x)));
}

void selu(OnnxNode& n) {
  const Val x = n.in(0);
  n.out(0, elu(x, n.f("alpha", 1.67326319217681884765625)) * n.f("gamma", 1.05070102214813232421875));
}

void thresholded_relu(OnnxNode& n) {
  const Val x = n.in(0);
  n.out(0, where(tf("Greater", {x, like(n.f("alpha", 1), x)}), x, like(0, x)));
}

Val between(Val x, double low, double high) { return minimum(maximum(x, like(low, x)), like(high, x)); }

void hard_sigmoid(OnnxNode& n) { n.out(0, between(n.in(0) * n.f("alpha", 0.2) + n.f("beta", 0.5), 0, 1)); }

void hard_swish(OnnxNode& n) { n.out(0, n.in(0) * between(n.in(0) / 6.0 + 0.5, 0, 1)); }

void gelu(OnnxNode& n) {
  const Val x = n.in(0);
  if (n.s("approximate", "none") == "tanh") {
    const double scale = std::sqrt(2 / std::numbers::pi);
    return n.out(0, 0.5 * x * (tf("Tanh", {(x + 0.044715 * x * x * x) * scale}) + 1.0));
  }
  n.out(0, 0.5 * x * (tf("Erf", {x / std::sqrt(2.0)}) + 1.0));
}

void swish(OnnxNode& n) {
  const Val x = n.in(0);
  n.out(0, x * tf("Sigmoid", {x * n.f("alpha", 1)}));
}

void mish(OnnxNode& n) { n.out(0, n.in(0) * tf("Tanh", {tf("Softplus", {n.in(0)})})); }

void shrink(OnnxNode& n) {
  const Val x = n.in(0);
  const double lambda = n.f("lambd", 0.5), bias = n.f("bias", 0);
  const Val inner = where(tf("Greater", {x, like(lambda, x)}), x - bias, like(0, x));
  n.out(0, where(tf("Less", {x, like(-lambda, x)}), x + bias, inner));
}

void clip(OnnxNode& n) {
  Val x = n.in(0);
  const bool by_attr = n.opset < 11;
  if (by_attr ? n.has_attr("min") : n.has(1))
    x = binary_any("Maximum", x, by_attr ? like(n.f("min", 0), x) : n.in(1));
  if (by_attr ? n.has_attr("max") : n.has(2))
    x = binary_any("Minimum", x, by_attr ? like(n.f("max", 0), x) : n.in(2));
  n.out(0, x);
}

void string_concat(OnnxNode& n) { n.out(0, tf("StringJoin", {n.in(0), n.in(1)}, {{"N", 2}})); }

void where_op(OnnxNode& n) { n.out(0, where(n.in(0), n.in(1), n.in(2))); }

void identity(OnnxNode& n) {
  const Val x = n.in(0);
  n.out(0, is_floating(x.dtype()) && is_detach(n.proto()) ? tf("StopGradient", {x}) : x);
}

/// The input, and a mask that keeps everything; in training mode, which an input may ask for, kept elements
/// are scaled.
void dropout(OnnxNode& n) {
  const Val x = n.in(0), all = broadcast_to(n.b.number(1, DType::Bool), shape_of(x));
  const auto training = n.has(2) ? known_ints(cast(n.in(2), DType::Int64)) : Ints{0};
  const bool keeps_all = training && (training->at(0) == 0 || n.around.found_training());
  if (keeps_all) {
    n.out(0, x);
    if (n.wants(1)) n.out(1, all);
    return;
  }
  const Val ratio =
      n.has(1) ? cast(reshape(n.in(1), Ints{}), DType::Float32) : n.b.number(0.5, DType::Float32);
  const Val drawn = tf("RandomUniform", {shape_of(x)}, {{"dtype", DType::Float32}, {"seed", n.i("seed", 0)}});
  const Val kept = where(reshape(n.in(2), Ints{}), tf("GreaterEqual", {drawn, ratio}), all);
  const Val scale = where(reshape(n.in(2), Ints{}), 1.0 / (1.0 - ratio), like(1, ratio));
  n.out(0, where(kept, x * cast(scale, x.dtype()), like(0, x)));
  if (n.wants(1)) n.out(1, tf("Identity", {kept}));
}

constexpr char kAbs[] = "Abs", kNeg[] = "Neg", kSign[] = "Sign", kExp[] = "Exp", kLog[] = "Log",
               kSqrt[] = "Sqrt", kReciprocal[] = "Reciprocal", kSin[] = "Sin", kCos[] = "Cos", kTan[] = "Tan",
               kAsin[] = "Asin", kAcos[] = "Acos", kAtan[] = "Atan", kSinh[] = "Sinh", kCosh[] = "Cosh",
               kAsinh[] = "Asinh", kAcosh[] = "Acosh", kAtanh[] = "Atanh", kTanh[] = "Tanh",
               kSigmoid[] = "Sigmoid", kRelu[] = "Relu", kSoftplus[] = "Softplus", kSoftsign[] = "Softsign",
               kErf[] = "Erf", kFloor[] = "Floor", kCeil[] = "Ceil", kRound[] = "Rint", kIsNan[] = "IsNan",
               kNot[] = "LogicalNot", kInvert[] = "Invert";
constexpr char kAdd[] = "AddV2", kSub[] = "Sub", kMul[] = "Mul", kAnd[] = "LogicalAnd", kOr[] = "LogicalOr",
               kEqual[] = "Equal", kLess[] = "Less", kLessEqual[] = "LessEqual", kGreater[] = "Greater",
               kGreaterEqual[] = "GreaterEqual", kBitAnd[] = "BitwiseAnd", kBitOr[] = "BitwiseOr",
               kBitXor[] = "BitwiseXor", kMaximum[] = "Maximum", kMinimum[] = "Minimum";

}  // namespace

void add_elementwise(Translations& t) {
  t.add("Abs", unary<kAbs>);
  t.add("Neg", unary<kNeg>);
  t.add("Sign", unary<kSign>);
  t.add("Exp", unary<kExp>);
  t.add("Log", unary<kLog>);
  t.add("Sqrt", unary<kSqrt>);
  t.add("Reciprocal", unary<kReciprocal>);
  t.add("Sin", unary<kSin>);
  t.add("Cos", unary<kCos>);
  t.add("Tan", unary<kTan>);
  t.add("Asin", unary<kAsin>);
  t.add("Acos", unary<kAcos>);
  t.add("Atan", unary<kAtan>);
  t.add("Sinh", unary<kSinh>);
  t.add("Cosh", unary<kCosh>);
  t.add("Asinh", unary<kAsinh>);
  t.add("Acosh", unary<kAcosh>);
  t.add("Atanh", unary<kAtanh>);
  t.add("Tanh", unary<kTanh>);
  t.add("Sigmoid", unary<kSigmoid>);
  t.add("Relu", unary<kRelu>);
  t.add("Softplus", unary<kSoftplus>);
  t.add("Softsign", unary<kSoftsign>);
  t.add("Erf", unary<kErf>);
  t.add("Floor", unary<kFloor>);
  t.add("Ceil", unary<kCeil>);
  t.add("Round", unary<kRound>);
  t.add("IsNaN", unary<kIsNan>);
  t.add("Not", unary<kNot>);
  t.add("BitwiseNot", unary<kInvert>);
  t.add("Add", binary<kAdd>);
  t.add("Sub", binary<kSub>);
  t.add("Mul", binary<kMul>);
  t.add("Div", divide);
  t.add("Mod", modulo);
  t.add("Pow", power);
  t.add("And", binary<kAnd>);
  t.add("Or", binary<kOr>);
  t.add("Xor", logical_xor);
  t.add("Equal", binary<kEqual>);
  t.add("Less", binary<kLess>);
  t.add("LessOrEqual", binary<kLessEqual>);
  t.add("Greater", binary<kGreater>);
  t.add("GreaterOrEqual", binary<kGreaterEqual>);
  t.add("BitwiseAnd", binary<kBitAnd>);
  t.add("BitwiseOr", binary<kBitOr>);
  t.add("BitwiseXor", binary<kBitXor>);
  t.add("BitShift", bit_shift);
  t.add("Max", variadic<kMaximum>);
  t.add("Min", variadic<kMinimum>);
  t.add("Sum", variadic<kAdd>);
  t.add("Mean", mean);
  t.add("IsInf", is_inf);
  t.add("LeakyRelu", leaky_relu);
  t.add("PRelu", prelu);
  t.add("Elu", elu_op);
  t.add("Celu", celu);
  t.add("Selu", selu);
  t.add("ThresholdedRelu", thresholded_relu);
  t.add("HardSigmoid", hard_sigmoid);
  t.add("HardSwish", hard_swish);
  t.add("Gelu", gelu);
  t.add("Swish", swish);
  t.add("Mish", mish);
  t.add("Shrink", shrink);
  t.add("Clip", clip);
  t.add("Where", where_op);
  t.add("StringConcat", string_concat);
  t.add("Identity", identity);
  t.add("Dropout", dropout);
}

}  // namespace braid::onnx
