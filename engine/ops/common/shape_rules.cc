#include "engine/ops/common/shape_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace braid {

void require_dtype(const InferContext& c, int input, std::initializer_list<DType> allowed) {
  if (std::find(allowed.begin(), allowed.end(), c.dtype(input)) != allowed.end()) return;
  std::string names;
  for (DType dtype : allowed) names += (names.empty() ? "" : ", ") + std::string(dtype_name(dtype));
  c.fail(fmt::format("input {} must be one of {}, got {}", input, names, dtype_name(c.dtype(input))));
}

void require_floating(const InferContext& c, int input) {
  require_dtype(c, input, {DType::Float32, DType::Float64});
}

void require_number(const InferContext& c, int input) {
  require_dtype(c, input, {DType::Float32, DType::Float64, DType::Int32, DType::Int64});
}

void require_index_dtype(const InferContext& c, int input) {
  require_dtype(c, input, {DType::Int32, DType::Int64});
}

void require_min_rank(const InferContext& c, int input, int rank) {
  const Shape& s = c.shape(input);
  if (s.has_rank() && s.rank() < rank)
    c.fail(fmt::format("input {} must have rank >= {}, got {}", input, rank, s.to_string()));
}

Shape merged_shape(const InferContext& c, int a, int b) {
  Shape merged;
  if (!merge_shapes(c.shape(a), c.shape(b), merged))
    c.fail(fmt::format("inputs {} and {} must have one shape, got {} and {}", a, b, c.shape(a).to_string(),
                       c.shape(b).to_string()));
  return merged;
}

Shape broadcast_shape(const InferContext& c, int a, int b) {
  if (!c.shape(a).has_rank() || !c.shape(b).has_rank()) return Shape::unknown_rank();
  Shape result;
  if (!broadcast_shapes(c.shape(a), c.shape(b), result))
    c.fail(fmt::format("inputs {} and {} do not broadcast: {} and {}", a, b, c.shape(a).to_string(),
                       c.shape(b).to_string()));
  return result;
}

void infer_same_as_first(InferContext& c) { c.output(c.dtype(0), c.shape(0)); }

void infer_same_shapes(InferContext& c) {
  Shape shape = c.shape(0);
  for (int i = 1; i < c.inputs(); ++i) {
    c.require_same_dtype(0, i);
    Shape merged;
    if (!merge_shapes(shape, c.shape(i), merged))
      c.fail(fmt::format("inputs must have one shape, got {} and {} (input {})", shape.to_string(),
                         c.shape(i).to_string(), i));
    shape = merged;
  }
  c.output(c.dtype(0), shape);
}

void infer_broadcast(InferContext& c) {
  c.require_same_dtype(0, 1);
  c.output(c.dtype(0), broadcast_shape(c, 0, 1));
}

void infer_broadcast_bool(InferContext& c) {
  c.require_same_dtype(0, 1);
  c.output(DType::Bool, broadcast_shape(c, 0, 1));
}

namespace {

template <class Context>
int axis_in_range(const Context& c, std::int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) c.fail(fmt::format("axis {} is out of range for rank {}", axis, rank));
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

template <class Context>
std::vector<int> axes_of(const Context& c, const Tensor& value, int rank) {
  std::set<int> axes;
  for (std::int64_t axis : tensor_to_int64s(value)) axes.insert(axis_in_range(c, axis, rank));
  return {axes.begin(), axes.end()};
}

}  // namespace

int normalized_axis(const InferContext& c, std::int64_t axis, int rank) {
  return axis_in_range(c, axis, rank);
}

std::optional<std::vector<int>> reduction_axes(const InferContext& c, int axes_input, int rank) {
  const Tensor* value = c.value(axes_input);
  if (!value) return std::nullopt;
  return axes_of(c, *value, rank);
}

std::vector<int> known_axes(const PrepareContext& c, int axes_input, int rank) {
  const Tensor* value = c.values[static_cast<std::size_t>(axes_input)];
  if (!value) c.fail(fmt::format("the axes (input {}) must be known before the program runs", axes_input));
  return axes_of(c, *value, rank);
}

Shape reduced_shape(const Shape& shape, const std::vector<int>& axes, bool keep_dims) {
  std::vector<std::int64_t> dims;
  for (int i = 0; i < shape.rank(); ++i) {
    const bool reduced = std::find(axes.begin(), axes.end(), i) != axes.end();
    if (!reduced) dims.push_back(shape[i]);
    if (reduced && keep_dims) dims.push_back(1);
  }
  return Shape(std::move(dims));
}

double known_elements(const Shape& shape) {
  double n = 1;
  if (shape.has_rank())
    for (std::int64_t d : shape.dims()) n *= d == Shape::kUnknown ? 1.0 : static_cast<double>(d);
  return n;
}

double known_bytes(const OutputInfo& info) {
  return known_elements(info.shape) * static_cast<double>(dtype_size(info.dtype));
}

double traffic_bytes(const InferContext& c, std::span<const OutputInfo> outputs) {
  double bytes = 0;
  for (int i = 0; i < c.inputs(); ++i) bytes += known_bytes({c.dtype(i), c.shape(i)});
  for (const OutputInfo& out : outputs) bytes += known_bytes(out);
  return bytes;
}

std::function<Cost(const InferContext&, std::span<const OutputInfo>)> cost_per_output(double flops_each) {
  return [flops_each](const InferContext& c, std::span<const OutputInfo> outputs) {
    return Cost{flops_each * known_elements(outputs[0].shape), traffic_bytes(c, outputs)};
  };
}

std::function<Cost(const InferContext&, std::span<const OutputInfo>)> cost_per_input(double flops_each) {
  return [flops_each](const InferContext& c, std::span<const OutputInfo> outputs) {
    return Cost{flops_each * known_elements(c.shape(0)), traffic_bytes(c, outputs)};
  };
}

}  // namespace braid
