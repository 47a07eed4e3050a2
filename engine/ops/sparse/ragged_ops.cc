// Ops of ragged tensors, whose rows lie one behind the other and differ in length. Like those of
// sparse_ops.cc they have no kernels, but values for known inputs.
//   RaggedTensorToTensor(shape, values, default, partitions...), attribute row_partition_types: each level of
//     rows padded with the default, or cut, to the longest or to what `shape` says (-1: not)
//   RaggedTensorToSparse(splits..., values), attribute RAGGED_RANK: the same elements by their coordinates
//   RaggedRange(starts, limits, deltas): splits, and the numbers of each range
// Thread rule: pure functions.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/folded_ops.h"
#include "engine/ops/common/picked_elements.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

using Values = std::span<const Tensor* const>;
using Numbers = std::vector<std::int64_t>;

constexpr double kMostNumbers = 1LL << 31;  // of a range

void require_splits(const Numbers& splits) {
  if (splits.empty() || splits[0] != 0 || !std::is_sorted(splits.begin(), splits.end()))
    throw InvalidArgument("splits must begin with 0 and not fall");
}

/// Splits of one level from the row of each of its values.
Numbers splits_of(const Numbers& row_ids, std::int64_t rows) {
  Numbers splits(static_cast<std::size_t>(rows + 1));
  std::int64_t last = 0;
  for (const std::int64_t row : row_ids) {
    if (row < last || row >= rows)
      throw InvalidArgument(fmt::format("row {} falls, or is not in [0, {})", row, rows));
    ++splits[static_cast<std::size_t>(row + 1)];
    last = row;
  }
  for (std::size_t i = 1; i < splits.size(); ++i) splits[i] += splits[i - 1];
  return splits;
}

/// The splits of every level, outermost first. `partitions` are as row_partition_types names them.
std::vector<Numbers> levels_of(const std::vector<std::string>& types, Values partitions) {
  if (types.size() != partitions.size() || types.empty())
    throw InvalidArgument("needs a partition for each of row_partition_types");
  std::vector<Numbers> levels;
  std::int64_t rows = -1;  // of the next level
  for (std::size_t i = 0; i < types.size(); ++i) {
    const Numbers numbers = tensor_to_int64s(*partitions[i]);
    if (types[i] == "FIRST_DIM_SIZE" && i == 0 && numbers.size() == 1) {
      rows = numbers[0];
      continue;
    }
    if (types[i] == "ROW_SPLITS")
      levels.push_back(numbers);
    else if (types[i] == "VALUE_ROWIDS" && rows >= 0)
      levels.push_back(splits_of(numbers, rows));
    else
      throw InvalidArgument("partition " + std::to_string(i) + " cannot be " + types[i]);
    require_splits(levels.back());
    rows = levels.back().back();
  }
  if (levels.empty()) throw InvalidArgument("has no level of rows");
  return levels;
}

struct Padded {
  std::vector<Numbers> levels;
  Shape shape;
};

/// REQUIRES: all inputs but the values are known; of these the shape is.
Padded padded(const Node& node, const Tensor& asked, const Shape& values, Values partitions) {
  Padded p;
  p.levels = levels_of(node.attrs.require<std::vector<std::string>>("row_partition_types"), partitions);
  Numbers dims{static_cast<std::int64_t>(p.levels[0].size()) - 1};
  for (const Numbers& splits : p.levels) {
    std::int64_t longest = 0;
    for (std::size_t i = 1; i < splits.size(); ++i) longest = std::max(longest, splits[i] - splits[i - 1]);
    dims.push_back(longest);
  }
  for (int d = 1; d < values.rank(); ++d) dims.push_back(values[d]);
  if (asked.shape().rank() > 0) {
    const Numbers wanted = tensor_to_int64s(asked);
    if (wanted.size() != dims.size())
      throw InvalidArgument(fmt::format("the shape has {} axes, the result {}", wanted.size(), dims.size()));
    for (std::size_t d = 0; d < dims.size(); ++d) {
      if (wanted[d] < 0) continue;
      if (d > p.levels.size() && wanted[d] != dims[d])
        throw InvalidArgument(fmt::format("axis {} has {} elements, not {}", d, dims[d], wanted[d]));
      dims[d] = wanted[d];
    }
  }
  p.shape = Shape(std::move(dims));
  return p;
}

void infer_to_tensor(InferContext& c) {
  require_index_dtype(c, 0);
  c.require_same_dtype(1, 2);
  std::vector<const Tensor*> partitions;
  for (int i = 3; i < c.inputs(); ++i) partitions.push_back(c.value(i));
  const bool known = c.value(0) && c.shape(1).is_static() &&
                     std::find(partitions.begin(), partitions.end(), nullptr) == partitions.end();
  if (!known) return c.output(c.dtype(1), Shape::unknown_rank());
  if (c.shape(1).rank() == 0) c.fail("values must have rows");
  try {
    c.output(c.dtype(1), padded(c.node(), *c.value(0), c.shape(1), partitions).shape);
  } catch (const InvalidArgument& error) {
    c.fail(error.message());
  }
}

std::vector<Tensor> to_tensor(const Node& node, Values inputs) {
  const Tensor& values = *inputs[1];
  const Padded p = padded(node, *inputs[0], values.shape(), inputs.subspan(3));
  if (p.levels.back().back() > values.shape()[0])
    throw InvalidArgument(
        fmt::format("the splits need {} values, got {}", p.levels.back().back(), values.shape()[0]));
  if (inputs[2]->elements() != 1) throw InvalidArgument("the default must be one element");
  Numbers rows;  // which row of the level each place holds, -1: none
  const std::int64_t first = static_cast<std::int64_t>(p.levels[0].size()) - 1;
  for (std::int64_t i = 0; i < p.shape[0]; ++i) rows.push_back(i < first ? i : -1);
  for (std::size_t l = 0; l < p.levels.size(); ++l) {
    Numbers next;
    for (const std::int64_t row : rows)
      for (std::int64_t j = 0; j < p.shape[static_cast<int>(l) + 1]; ++j) {
        const auto r = static_cast<std::size_t>(row);
        const bool inside = row >= 0 && j < p.levels[l][r + 1] - p.levels[l][r];
        next.push_back(inside ? p.levels[l][r] + j : -1);
      }
    rows = std::move(next);
  }
  std::int64_t width = 1;
  for (int d = 1; d < values.shape().rank(); ++d) width *= values.shape()[d];
  Numbers from;
  for (const std::int64_t row : rows)
    for (std::int64_t e = 0; e < width; ++e) from.push_back(row < 0 ? -1 : row * width + e);
  return {picked_elements(values, *inputs[2], from, p.shape)};
}

// ---------------------------------------------------------------------------------------------------- sparse

void infer_to_sparse(InferContext& c) {
  const int values = c.inputs() - 1;
  const std::int64_t rank = c.shape(values).has_rank() ? values + c.shape(values).rank() : Shape::kUnknown;
  const std::int64_t n = c.shape(values).is_static() ? c.shape(values).elements() : Shape::kUnknown;
  for (int i = 0; i < values; ++i) require_index_dtype(c, i);
  c.output(DType::Int64, Shape{n, rank});
  c.output(c.dtype(values), Shape{n});
  c.output(DType::Int64, Shape{rank});
}

std::vector<Tensor> to_sparse(const Node&, Values inputs) {
  const Tensor& values = *inputs.back();
  if (inputs.size() < 2 || values.shape().rank() < 1)
    throw InvalidArgument("it needs row splits, and values of one axis or more");
  std::vector<Numbers> places;  // of the rows of a level, by and by of its values
  Numbers shape;
  for (std::size_t l = 0; l + 1 < inputs.size(); ++l) {
    const Numbers splits = tensor_to_int64s(*inputs[l]);
    require_splits(splits);
    const std::int64_t rows = static_cast<std::int64_t>(splits.size()) - 1;
    if (l == 0) {
      for (std::int64_t i = 0; i < rows; ++i) places.push_back({i});
      shape.push_back(rows);
    }
    if (places.size() != static_cast<std::size_t>(rows))
      throw InvalidArgument(fmt::format("level {} has {} rows, not {}", l, rows, places.size()));
    std::vector<Numbers> inner;
    std::int64_t longest = 0;
    for (std::size_t i = 0; i + 1 < splits.size(); ++i) {
      longest = std::max(longest, splits[i + 1] - splits[i]);
      for (std::int64_t j = 0; j < splits[i + 1] - splits[i]; ++j) {
        inner.push_back(places[i]);
        inner.back().push_back(j);
      }
    }
    places = std::move(inner);
    shape.push_back(longest);
  }
  for (int d = 0; d < values.shape().rank(); ++d)
    if (d > 0) shape.push_back(values.shape()[d]);
  if (static_cast<std::int64_t>(places.size()) != values.shape()[0])
    throw InvalidArgument(fmt::format("the splits need {} values, got {}", places.size(), values.shape()[0]));
  Numbers flat, all;
  const std::int64_t width = values.shape()[0] == 0 ? 0 : values.elements() / values.shape()[0];
  for (const Numbers& place : places)
    for (std::int64_t e = 0; e < width; ++e) {
      flat.insert(flat.end(), place.begin(), place.end());
      Numbers inside;
      std::int64_t rest = e;
      for (int d = values.shape().rank() - 1; d > 0; rest /= values.shape()[d--])
        inside.insert(inside.begin(), rest % values.shape()[d]);
      flat.insert(flat.end(), inside.begin(), inside.end());
      all.push_back(static_cast<std::int64_t>(all.size()));
    }
  const auto rank = static_cast<std::int64_t>(shape.size());
  return {Tensor::from<std::int64_t>({static_cast<std::int64_t>(all.size()), rank}, flat),
          picked_elements(values, values, all, Shape{static_cast<std::int64_t>(all.size())}),
          Tensor::from<std::int64_t>({rank}, shape)};
}

// ---------------------------------------------------------------------------------------------------- ranges

template <class T>
T element(const Tensor& numbers, std::int64_t i) {
  return numbers.data<T>()[static_cast<std::size_t>(numbers.shape().rank() == 0 ? 0 : i)];
}

/// How many numbers each range has, where vectors say so; scalars are for every range.
Numbers range_sizes(Values inputs) {
  std::int64_t ranges = 1;
  for (const Tensor* input : inputs)
    if (input->shape().rank() > 0) ranges = input->shape()[0];
  for (const Tensor* input : inputs)
    if (input->shape().rank() > 0 && input->shape()[0] != ranges)
      throw InvalidArgument("starts, limits and deltas differ in length");
  Numbers sizes;
  with_number("RaggedRange", inputs[0]->dtype(), [&]<class T>() {
    for (std::int64_t i = 0; i < ranges; ++i) {
      const T start = element<T>(*inputs[0], i), limit = element<T>(*inputs[1], i);
      const T delta = element<T>(*inputs[2], i);
      if (delta == T(0)) throw InvalidArgument("a delta is 0");
      const bool empty = delta > T(0) ? start >= limit : start <= limit;
      const double steps =
          (static_cast<double>(limit) - static_cast<double>(start)) / static_cast<double>(delta);
      if (!(empty || steps <= kMostNumbers))
        throw InvalidArgument(fmt::format("range {} has {} numbers", i, steps));
      sizes.push_back(empty ? 0 : static_cast<std::int64_t>(std::ceil(steps)));
    }
  });
  return sizes;
}

void infer_range(InferContext& c) {
  require_number(c, 0);
  const DType splits = c.attr("Tsplits", DType::Int64);
  for (const int i : {1, 2}) c.require_same_dtype(0, i);
  std::int64_t ranges = Shape::kUnknown, n = Shape::kUnknown;
  if (c.value(0) && c.value(1) && c.value(2)) {
    const Tensor* inputs[] = {c.value(0), c.value(1), c.value(2)};
    Numbers sizes;
    try {
      sizes = range_sizes(inputs);
    } catch (const InvalidArgument& error) {
      c.fail(error.message());
    }
    ranges = static_cast<std::int64_t>(sizes.size()) + 1;
    n = 0;
    for (const std::int64_t size : sizes) n += size;
  }
  c.output(splits, Shape{ranges});
  c.output(c.dtype(0), Shape{n});
}

std::vector<Tensor> range(const Node& node, Values inputs) {
  const Numbers sizes = range_sizes(inputs);
  Numbers splits{0};
  for (const std::int64_t size : sizes) splits.push_back(splits.back() + size);
  Tensor numbers(inputs[0]->dtype(), Shape{splits.back()});
  with_number("RaggedRange", numbers.dtype(), [&]<class T>() {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      T next = element<T>(*inputs[0], static_cast<std::int64_t>(i));
      for (std::int64_t k = splits[i]; k < splits[i + 1]; ++k) {
        numbers.data<T>()[static_cast<std::size_t>(k)] = next;
        next = static_cast<T>(next + element<T>(*inputs[2], static_cast<std::int64_t>(i)));
      }
    }
  });
  const Shape rows{static_cast<std::int64_t>(splits.size())};
  if (node.attrs.get("Tsplits", DType::Int64) == DType::Int64)
    return {Tensor::from<std::int64_t>(rows, splits), numbers};
  return {Tensor::from<std::int32_t>(rows, std::vector<std::int32_t>(splits.begin(), splits.end())), numbers};
}

OpTraits sparse() { return computes().names({"sparse_indices", "sparse_values", "sparse_dense_shape"}); }
OpTraits ragged() { return computes().names({"rt_nested_splits", "rt_dense_values"}); }

constexpr FoldedOp kOps[] = {
    {"RaggedTensorToTensor", 4, -1, infer_to_tensor, to_tensor},
    {"RaggedTensorToSparse", 2, -1, infer_to_sparse, to_sparse, sparse},
    {"RaggedRange", 3, 3, infer_range, range, ragged},
};

}  // namespace

void register_ragged_ops(OpRegistry& registry) {
  register_folded_ops(registry, kOps, "it has no kernel, its values are known before a program runs");
}

}  // namespace braid
