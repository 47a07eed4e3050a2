#include "engine/import/onnx/unsigned.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string_view>

#include "base/dtype.h"

namespace braid::onnx {
namespace {

constexpr std::int64_t kTop = std::numeric_limits<std::int64_t>::min();

Val int64_of(Val x, std::int64_t value) { return x.made_by().constant(Tensor::scalar(value)); }
Val to_signed(Val x) { return tf("Bitcast", {x}, {{"T", DType::UInt64}, {"type", DType::Int64}}); }
Val to_unsigned(Val x) { return tf("Bitcast", {x}, {{"T", DType::Int64}, {"type", DType::UInt64}}); }
/// Maps the order of uint64 bits on that of int64, and back.
Val flip_top(Val x) { return tf("BitwiseXor", {x, int64_of(x, kTop)}); }

bool is_comparison(std::string_view op) {
  return op == "Less" || op == "LessEqual" || op == "Greater" || op == "GreaterEqual";
}

/// The bits of x shifted right by one.
Val half(Val x) {
  return tf("BitwiseAnd",
            {tf("FloorDiv", {x, like(2, x)}), int64_of(x, std::numeric_limits<std::int64_t>::max())});
}

/// Quotient of bits that stand for unsigned numbers: half the dividend fits, one step corrects the rest. A
/// divisor from 2^63 on goes into anything at most once.
Val quotient(Val a, Val b) {
  const Val zero = like(0, a), one = like(1, a);
  const Val is_large = tf("Less", {b, zero});
  const Val divisor = where(is_large, one, b);
  const Val guess = tf("Div", {half(a), divisor}) * 2.0;
  const Val rest = a - guess * divisor;
  const auto one_if = [&](Val x, Val least) {
    return cast(tf("GreaterEqual", {flip_top(x), flip_top(least)}), DType::Int64);
  };
  return where(is_large, one_if(a, b), guess + one_if(rest, divisor));
}

Val binary_uint64(std::string_view op, const char* name, Val a, Val b) {
  const Val x = to_signed(a), y = to_signed(b);
  if (op == "Equal" || op == "NotEqual") return tf(name, {x, y});
  if (is_comparison(op)) return tf(name, {flip_top(x), flip_top(y)});
  if (op == "Maximum" || op == "Minimum") return to_unsigned(flip_top(tf(name, {flip_top(x), flip_top(y)})));
  if (op == "Div" || op == "FloorDiv") return to_unsigned(quotient(x, y));
  if (op == "FloorMod" || op == "TruncateMod") return to_unsigned(x - quotient(x, y) * y);
  return to_unsigned(tf(name, {x, y}));
}

}  // namespace

Val binary_any(const char* op, Val a, Val b) {
  return a.dtype() == DType::UInt64 ? binary_uint64(op, op, a, b) : tf(op, {a, b});
}

Val shift(Val a, Val b, bool left) {
  const DType dtype = a.dtype();
  const bool widest = dtype == DType::UInt64,
             narrow_unsigned = dtype == DType::UInt8 || dtype == DType::UInt16 || dtype == DType::UInt32;
  const Val x = widest ? to_signed(a) : cast(a, DType::Int64);
  const Val count = widest ? to_signed(b) : cast(b, DType::Int64);
  const Val zero = like(0, x), width = like(static_cast<double>(8 * dtype_size(dtype)), x);
  const Val fits = tf("LogicalAnd", {tf("Less", {count, width}), tf("GreaterEqual", {count, zero})});
  // A power of two below 2^63: the last bit goes by itself.
  const Val power = tf("Pow", {like(2, x), minimum(maximum(count - 1.0, zero), like(62, x))});
  const Val first = widest ? half(x) : tf("FloorDiv", {x, like(2, x)});
  const Val moved = left ? x * power * 2.0 : tf("FloorDiv", {first, power});
  const bool has_sign = !widest && !narrow_unsigned && !left;
  const Val out_of_it = has_sign ? where(tf("Less", {x, zero}), like(-1, x), zero) : zero;
  const Val result = where(fits, where(tf("Equal", {count, zero}), x, moved), out_of_it);
  return widest ? to_unsigned(result) : cast(result, dtype);
}

}  // namespace braid::onnx
