// Linear quantisation: y = saturate(round(x / scale) + zero point) and back, for a tensor, an axis, or blocks
// of one.
#include "base/error.h"
#include "engine/import/onnx/node.h"
#include "engine/import/onnx/tensors.h"

namespace braid::onnx {
namespace {

/// Scales and zero points in a shape that broadcasts with x: a vector lies along the axis, blocks are
/// repeated.
Val along(OnnxNode& n, Val parameter, Val x) {
  if (parameter.rank() == 0) return parameter;
  const std::int64_t block = n.i("block_size", 0);
  const int axis = positive_axis(n.i("axis", 1), std::max(x.rank(), 2));
  if (parameter.rank() == 1 && block == 0) {
    if (parameter.dim(0) == 1) return reshape(parameter, Ints{});
    Ints shape(static_cast<std::size_t>(x.rank()), 1);
    shape[static_cast<std::size_t>(axis)] = -1;
    return reshape(parameter, shape);
  }
  if (block < 1) throw InvalidArgument("block_size must be positive");
  const Val at = range(size_of(x, axis));
  return gather(parameter, tf("FloorDiv", {at, like(static_cast<double>(block), at)}), axis);
}

Val saturated(Val x, DType dtype) {
  const auto between = [&](double low, double high) {
    return minimum(maximum(x, like(low, x)), like(high, x));
  };
  switch (dtype) {
    case DType::Int8:
      return cast(between(-128, 127), dtype);
    case DType::UInt8:
      return cast(between(0, 255), dtype);
    case DType::Int16:
      return cast(between(-32768, 32767), dtype);
    case DType::UInt16:
      return cast(between(0, 65535), dtype);
    default:
      throw InvalidArgument("quantisation to this type is not supported");
  }
}

void quantize_linear(OnnxNode& n) {
  const Val x = cast(n.in(0), DType::Float32);
  Val y = tf("Rint", {x / cast(along(n, n.in(1), x), DType::Float32)});
  const auto wanted = n.i32("output_dtype", 0);
  DType dtype = wanted == 0 ? DType::UInt8 : dtype_of_onnx(wanted);
  if (n.has(2)) {
    dtype = n.in(2).dtype();
    y = y + cast(along(n, n.in(2), x), DType::Float32);
  }
  n.out(0, saturated(y, dtype));
}

void dequantize_linear(OnnxNode& n) {
  const Val x = n.in(0), scale = along(n, n.in(1), x);
  Val y = cast(x, DType::Float32);
  if (n.has(2)) y = y - cast(along(n, n.in(2), x), DType::Float32);
  n.out(0, cast(y * cast(scale, DType::Float32), n.in(1).dtype()));
}

void dynamic_quantize_linear(OnnxNode& n) {
  const Val x = n.in(0), zero = like(0, x);
  const Ints all = all_axes(x.rank());
  const Val high = maximum(reduce("Max", x, all), zero), low = minimum(reduce("Min", x, all), zero);
  const Val scale = (high - low) / 255.0;
  const Val point = tf("Rint", {minimum(maximum(-low / scale, zero), like(255, x))});
  n.out(0, saturated(tf("Rint", {x / scale}) + point, DType::UInt8));
  n.out(1, tf("Identity", {scale}));
  n.out(2, cast(point, DType::UInt8));
}

}  // namespace

void add_quantized(Translations& t) {
  t.add("QuantizeLinear", quantize_linear);
  t.add("DequantizeLinear", dequantize_linear);
  t.add("DynamicQuantizeLinear", dynamic_quantize_linear);
}

}  // namespace braid::onnx
