// The functions on Val that translations are written in (builder.h).
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "engine/import/onnx/builder.h"

namespace braid::onnx {

constexpr int kMaxRank = 64;

Val tf(const char* op, const std::vector<Val>& inputs, AttrMap attrs) {
  if (inputs.empty()) throw InvalidArgument(fmt::format("{} of no values", op));
  return inputs.front().made_by().op(op, inputs, std::move(attrs));
}

Val like(double value, Val x) { return x.made_by().number(value, x.dtype()); }
Val ints(Val beside, const Ints& values, DType dtype) { return beside.made_by().ints(values, dtype); }

Val cast(Val x, DType dtype) {
  if (x.dtype() == dtype) return x;
  return tf("Cast", {x}, {{"SrcT", x.dtype()}, {"DstT", dtype}});
}

Val operator+(Val a, Val b) { return tf("AddV2", {a, b}); }
Val operator-(Val a, Val b) { return tf("Sub", {a, b}); }
Val operator*(Val a, Val b) { return tf("Mul", {a, b}); }
Val operator/(Val a, Val b) { return tf(is_floating(a.dtype()) ? "RealDiv" : "Div", {a, b}); }
Val operator-(Val a) { return tf("Neg", {a}); }
Val operator+(Val a, double b) { return a + like(b, a); }
Val operator-(Val a, double b) { return a - like(b, a); }
Val operator*(Val a, double b) { return a * like(b, a); }
Val operator/(Val a, double b) { return a / like(b, a); }
Val operator+(double a, Val b) { return like(a, b) + b; }
Val operator-(double a, Val b) { return like(a, b) - b; }
Val operator*(double a, Val b) { return like(a, b) * b; }
Val operator/(double a, Val b) { return like(a, b) / b; }
Val maximum(Val a, Val b) { return tf("Maximum", {a, b}); }
Val minimum(Val a, Val b) { return tf("Minimum", {a, b}); }
Val where(Val condition, Val a, Val b) { return tf("SelectV2", {condition, a, b}); }

Val reduce(const char* op, Val x, const Ints& axes, bool keep_dims) {
  return tf(op, {x, ints(x, axes)}, {{"keep_dims", keep_dims}});
}

Val reshape(Val x, const Ints& shape) { return reshape(x, ints(x, shape)); }
Val reshape(Val x, Val shape) { return tf("Reshape", {x, shape}); }

Val reshape(Val x, const std::vector<Val>& sizes) {
  Ints shape;
  int unknown = 0;
  for (const Val& size : sizes) {
    const auto known = known_ints(size);
    shape.push_back(known ? known->front() : Shape::kUnknown);
    if (shape.back() < 0) ++unknown;
  }
  const bool has_zero = std::find(shape.begin(), shape.end(), 0) != shape.end();
  if (unknown == 0 || (unknown == 1 && !has_zero)) return reshape(x, shape);
  return refined(reshape(x, pack(sizes, 0)), shape);
}

Val refined(Val x, const Ints& sizes) {
  Shape own(sizes), both;
  for (int axis = 0; axis < own.rank(); ++axis) own.set_dim(axis, std::max(own.dim(axis), Shape::kUnknown));
  if (!merge_shapes(x.shape(), own, both))
    throw InvalidArgument(
        fmt::format("a value of shape {} cannot have shape {}", x.shape().to_string(), own.to_string()));
  return both == x.shape() ? x : tf("EnsureShape", {x}, {{"shape", both}});
}

Val transpose(Val x, const Ints& permutation) {
  if (std::is_sorted(permutation.begin(), permutation.end())) return x;
  return tf("Transpose", {x, ints(x, permutation)});
}

Ints moving(int rank, int from, int to) {
  Ints permutation = all_axes(rank);
  positive_axis(from, rank);
  positive_axis(to, rank);
  permutation.erase(permutation.begin() + from);
  permutation.insert(permutation.begin() + to, from);
  return permutation;
}

Ints inverse(const Ints& permutation) {
  Ints result(permutation.size());
  for (std::size_t i = 0; i < permutation.size(); ++i)
    result[static_cast<std::size_t>(permutation[i])] = static_cast<std::int64_t>(i);
  return result;
}

Val expand_dims(Val x, int axis) { return tf("ExpandDims", {x, x.made_by().number(axis, DType::Int64)}); }

Val squeeze(Val x, const Ints& axes) {
  return axes.empty() ? x : tf("Squeeze", {x}, {{"squeeze_dims", axes}});
}

Val shape_of(Val x) { return tf("Shape", {x}, {{"out_type", DType::Int64}}); }

Val size_of(Val x, int axis) {
  const std::int64_t size = x.dim(axis);
  if (size != Shape::kUnknown) return x.made_by().number(static_cast<double>(size), DType::Int64);
  const std::int64_t at = positive_axis(axis, x.rank());
  return reshape(slice(shape_of(x), 0, at, at + 1), Ints{});
}

Val concat(const std::vector<Val>& parts, int axis) {
  if (parts.empty()) throw InvalidArgument("there is nothing to join");
  if (parts.size() == 1) return parts.front();
  std::vector<Val> inputs = parts;
  inputs.push_back(parts.front().made_by().number(axis, DType::Int32));
  return tf("ConcatV2", inputs, {{"N", static_cast<std::int64_t>(parts.size())}});
}

Val pack(const std::vector<Val>& parts, int axis) {
  return tf("Pack", parts, {{"N", static_cast<std::int64_t>(parts.size())}, {"axis", axis}});
}

Val gather(Val x, Val indices, int axis) {
  return tf("GatherV2", {x, indices, x.made_by().number(axis, DType::Int64)});
}

Val slice(Val x, int axis, std::int64_t begin, std::int64_t end, std::int64_t step) {
  const int at = positive_axis(axis, x.rank());
  Ints begins(static_cast<std::size_t>(at) + 1, 0), ends = begins, steps(begins.size(), 1);
  begins.back() = begin;
  ends.back() = end;
  steps.back() = step;
  constexpr int kMaskBits = 32;
  if (at >= kMaskBits) throw InvalidArgument(fmt::format("{} axes are not supported", x.rank()));
  const std::int64_t others = (std::int64_t{1} << at) - 1, here = std::int64_t{1} << at;
  const bool to_end = step > 0 ? end == kToEnd : end == std::numeric_limits<std::int64_t>::min();
  if (to_end) ends.back() = 0;
  return tf("StridedSlice", {x, ints(x, begins), ints(x, ends), ints(x, steps)},
            {{"begin_mask", others}, {"end_mask", to_end ? others | here : others}});
}

Val element(Val vector, int i) { return reshape(slice(vector, 0, i, i + 1), Ints{}); }

Val range(Val count) {
  Builder& b = count.made_by();
  return tf("Range", {b.number(0, DType::Int64), cast(count, DType::Int64), b.number(1, DType::Int64)});
}

Val broadcast_to(Val x, Val shape) { return tf("BroadcastTo", {x, shape}); }

Val pad(Val x, const Ints& before, const Ints& after, Val value) {
  Ints both;
  bool any = false;
  if (before.size() != after.size()) throw InvalidArgument("pads in front and behind are not as many");
  for (std::size_t i = 0; i < before.size(); ++i) {
    both.push_back(before[i]);
    both.push_back(after[i]);
    any = any || before[i] != 0 || after[i] != 0;
  }
  if (!any) return x;
  const Val paddings = reshape(ints(x, both), Ints{static_cast<std::int64_t>(before.size()), 2});
  return tf("PadV2", {x, paddings, value});
}

Val matmul(Val a, Val b) {
  return a.rank() == 2 && b.rank() == 2 ? tf("MatMul", {a, b}) : tf("BatchMatMulV2", {a, b});
}

std::vector<Val> split(Val x, int axis, const Ints& sizes) {
  std::vector<Val> parts;
  if (sizes.size() == 1) return {x};
  const Val all = tf("SplitV", {x, ints(x, sizes), x.made_by().number(axis, DType::Int32)},
                     {{"num_split", static_cast<std::int64_t>(sizes.size())}});
  for (std::size_t i = 0; i < sizes.size(); ++i) parts.push_back(all.at(static_cast<int>(i)));
  return parts;
}

std::optional<Ints> known_ints(Val x) {
  const Tensor* value = x.known();
  return value ? std::optional<Ints>(tensor_to_int64s(*value)) : std::nullopt;
}

Ints need_ints(Val x, const char* what) {
  const std::optional<Ints> values = known_ints(x);
  if (!values) throw InvalidArgument(fmt::format("{} must be a constant", what));
  return *values;
}

int positive_axis(std::int64_t axis, int rank) {
  if (axis < -rank || axis >= rank)
    throw InvalidArgument(fmt::format("axis {} is not one of {} axes", axis, rank));
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

void check_unrolled(std::int64_t count, const char* what) {
  constexpr std::int64_t kMost = 4096;
  if (count > kMost) throw InvalidArgument(fmt::format("{} {} are too many to be unrolled", count, what));
}

Ints all_axes(int rank, int first) {
  if (rank - first > kMaxRank) throw InvalidArgument(fmt::format("{} axes are not supported", rank));
  Ints axes(static_cast<std::size_t>(std::max(rank - first, 0)));
  std::iota(axes.begin(), axes.end(), first);
  return axes;
}

}  // namespace braid::onnx
