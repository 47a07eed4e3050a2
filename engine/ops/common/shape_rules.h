// Shape rules that several ops share, and the checks they are made of. All of them accept unknown dimensions
// and ranks.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/ir/op.h"

namespace braid {

/// Fails unless the input's type is one of `allowed`.
void require_dtype(const InferContext& c, int input, std::initializer_list<DType> allowed);
void require_floating(const InferContext& c, int input);     // float32, float64
void require_number(const InferContext& c, int input);       // float32, float64, int32, int64
void require_index_dtype(const InferContext& c, int input);  // int32, int64
void require_min_rank(const InferContext& c, int input, int rank);

/// The shape that inputs a and b both have. Fails when they contradict.
Shape merged_shape(const InferContext& c, int a, int b);
/// The broadcast shape of inputs a and b (unknown rank when either's is). Fails when they do not broadcast.
Shape broadcast_shape(const InferContext& c, int a, int b);

/// Output 0 has input 0's type and shape.
void infer_same_as_first(InferContext& c);
/// All inputs have one type and one shape, which is the output's.
void infer_same_shapes(InferContext& c);
/// Two inputs of one type that broadcast; the output has their type.
void infer_broadcast(InferContext& c);
/// As infer_broadcast, with a bool output.
void infer_broadcast_bool(InferContext& c);

/// `axis` in [-rank, rank) as [0, rank). Fails naming the axis otherwise.
int normalized_axis(const InferContext& c, std::int64_t axis, int rank);
/// The reduced axes as sorted, distinct indices, from the value of input `axes_input`; empty optional when
/// that is not known. REQUIRES: rank is known. Fails for an axis that is out of range.
std::optional<std::vector<int>> reduction_axes(const InferContext& c, int axes_input, int rank);
/// The same in `prepare`, where the value must be known. Fails naming the input otherwise.
std::vector<int> known_axes(const PrepareContext& c, int axes_input, int rank);
/// `shape` without the reduced axes, or with 1 in their place.
Shape reduced_shape(const Shape& shape, const std::vector<int>& axes, bool keep_dims);

/// Cost of an op that does `flops_each` operations for each element of its output 0 and touches inputs and
/// outputs once. Unknown dimensions count as 1.
std::function<Cost(const InferContext&, std::span<const OutputInfo>)> cost_per_output(double flops_each);
/// As above, for each element of input 0.
std::function<Cost(const InferContext&, std::span<const OutputInfo>)> cost_per_input(double flops_each);
/// Elements with unknown dimensions counted as 1; bytes likewise.
double known_elements(const Shape& shape);
double known_bytes(const OutputInfo& info);
/// Bytes of all inputs and outputs.
double traffic_bytes(const InferContext& c, std::span<const OutputInfo> outputs);

}  // namespace braid
