// Ops of sparse matrices in coordinates (indices [n, rank], values [n], shape [rank]) whose results have as
// many elements as the data say, as feature columns use them. They have no kernels: where their inputs are
// known shape inference takes their values from here (OpDef::fold).
//   SparseReshape(indices, shape, new_shape): indices and shape under another shape of as many elements
//   SparseFillEmptyRows(indices, values, shape, default): rows in order, those without an element with one at
//     column 0; also which rows were empty [rows], and where each element has gone [n]
//   SparseCross(indices..., values..., shapes..., dense...), attributes hashed_output, num_buckets, hash_key:
//     combinations of one element each of a row, the last input's first, as chained fingerprints modulo
//     num_buckets or joined by "_X_"
//   DenseBincount(x, size, weights), attribute binary_output: how often (or with what weight) each number
//     below `size` occurs, in x or in each row of it
// Thread rule: pure functions.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/folded_ops.h"
#include "engine/ops/common/picked_elements.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/common/string_hash.h"

namespace braid {
namespace {

using Values = std::span<const Tensor* const>;
using Numbers = std::vector<std::int64_t>;

Tensor vector_of(const Numbers& numbers) {
  return Tensor::from<std::int64_t>({static_cast<std::int64_t>(numbers.size())}, numbers);
}

Tensor matrix_of(const Numbers& numbers, std::int64_t columns) {
  const std::int64_t rows = columns == 0 ? 0 : static_cast<std::int64_t>(numbers.size()) / columns;
  return Tensor::from<std::int64_t>({rows, columns}, numbers);
}

void require_int64(InferContext& c, int input, int rank) {
  require_dtype(c, input, {DType::Int64});
  c.require_rank(input, rank);
}

// ------------------------------------------------------------------------------------------------- reshaping

void infer_reshape(InferContext& c) {
  require_int64(c, 0, 2);
  require_int64(c, 1, 1);
  require_int64(c, 2, 1);
  const std::int64_t n = c.shape(0).has_rank() ? c.shape(0)[0] : Shape::kUnknown;
  const std::int64_t rank = c.shape(2).has_rank() ? c.shape(2)[0] : Shape::kUnknown;
  c.output(DType::Int64, Shape{n, rank});
  c.output(DType::Int64, Shape{rank});
}

/// Fills the one -1 of `target`.
Numbers resolved(Numbers target, std::int64_t elements) {
  std::int64_t known = 1;
  std::int64_t* free = nullptr;
  for (std::int64_t& dim : target) {
    if (dim >= 0) {
      known *= dim;
      continue;
    }
    if (dim < -1 || free) throw InvalidArgument("new_shape must hold sizes, and -1 at most once");
    free = &dim;
  }
  if (free && known > 0) *free = elements / known;
  const std::int64_t product =
      std::accumulate(target.begin(), target.end(), std::int64_t{1}, std::multiplies<>());
  if ((free && known == 0) || product != elements)
    throw InvalidArgument(
        fmt::format("{} elements do not fit the new shape [{}]", elements, fmt::join(target, ", ")));
  return target;
}

std::vector<Tensor> reshape(const Node&, Values inputs) {
  const Numbers indices = tensor_to_int64s(*inputs[0]), shape = tensor_to_int64s(*inputs[1]);
  const auto elements = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  const Numbers target = resolved(tensor_to_int64s(*inputs[2]), elements);
  Numbers moved;
  for (std::size_t at = 0; at < indices.size(); at += shape.size()) {
    std::int64_t flat = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) flat = flat * shape[d] + indices[at + d];
    moved.resize(moved.size() + target.size());
    for (std::size_t d = target.size(), end = moved.size(); d-- > 0; flat /= target[d])
      moved[end - target.size() + d] = flat % target[d];
  }
  return {matrix_of(moved, static_cast<std::int64_t>(target.size())), vector_of(target)};
}

// ------------------------------------------------------------------------------------------------ empty rows

void infer_fill(InferContext& c) {
  require_int64(c, 0, 2);
  c.require_rank(1, 1);
  require_int64(c, 2, 1);
  c.require_same_dtype(1, 3);
  c.require_rank(3, 0);
  std::int64_t n = Shape::kUnknown, rows = Shape::kUnknown;
  if (c.value(2) && c.value(2)->elements() > 0) rows = tensor_to_int64s(*c.value(2))[0];
  if (c.value(0) && rows != Shape::kUnknown) {
    std::vector<bool> has(static_cast<std::size_t>(rows));
    const Numbers indices = tensor_to_int64s(*c.value(0));
    const auto rank = static_cast<std::size_t>(c.value(0)->shape()[1]);
    for (std::size_t at = 0; at < indices.size(); at += rank) {
      if (indices[at] < 0 || indices[at] >= rows)
        c.fail(fmt::format("element {} is in row {} of {}", at / rank, indices[at], rows));
      has[static_cast<std::size_t>(indices[at])] = true;
    }
    n = c.value(0)->shape()[0] + std::count(has.begin(), has.end(), false);
  }
  c.output(DType::Int64, Shape{n, c.shape(0).has_rank() ? c.shape(0)[1] : Shape::kUnknown});
  c.output(c.dtype(1), Shape{n});
  c.output(DType::Bool, Shape{rows});
  c.output(DType::Int64, Shape{c.shape(0).has_rank() ? c.shape(0)[0] : Shape::kUnknown});
}

std::vector<Tensor> fill_empty_rows(const Node&, Values inputs) {
  const Numbers indices = tensor_to_int64s(*inputs[0]);
  const std::int64_t n = inputs[0]->shape()[0], rank = inputs[0]->shape()[1];
  const std::int64_t rows = tensor_to_int64s(*inputs[2])[0];
  std::vector<Numbers> of_row(static_cast<std::size_t>(rows));
  for (std::int64_t i = 0; i < n; ++i)
    of_row[static_cast<std::size_t>(indices[static_cast<std::size_t>(i * rank)])].push_back(i);
  Numbers filled, from, gone_to(static_cast<std::size_t>(n));
  Tensor is_empty(DType::Bool, Shape{rows});
  for (std::size_t row = 0; row < of_row.size(); ++row) {
    is_empty.data<bool>()[row] = of_row[row].empty();
    for (const std::int64_t i : of_row[row]) {
      gone_to[static_cast<std::size_t>(i)] = static_cast<std::int64_t>(from.size());
      from.push_back(i);
      filled.insert(filled.end(), indices.begin() + i * rank, indices.begin() + (i + 1) * rank);
    }
    if (!of_row[row].empty()) continue;
    from.push_back(-1);
    filled.push_back(static_cast<std::int64_t>(row));
    filled.insert(filled.end(), static_cast<std::size_t>(rank - 1), 0);
  }
  const Shape filled_rows{static_cast<std::int64_t>(from.size())};
  return {matrix_of(filled, rank), picked_elements(*inputs[1], *inputs[3], from, filled_rows), is_empty,
          vector_of(gone_to)};
}

// -------------------------------------------------------------------------------------------------- crossing

/// The elements of a row of each column: sparse ones by their row, dense ones by their axis 1.
struct CrossColumns {
  std::vector<const Tensor*> values;
  std::vector<std::vector<Numbers>> elements;  // column, row: which of the values
  std::int64_t rows = 0;
};

CrossColumns columns_of(const Node& node, Values inputs) {
  const auto sparse = static_cast<std::size_t>(node.attrs.require<std::int64_t>("N"));
  CrossColumns columns;
  columns.rows = sparse > 0 ? tensor_to_int64s(*inputs[2 * sparse])[0] : inputs[3 * sparse]->shape()[0];
  for (std::size_t i = 0; i < sparse; ++i) {
    const Numbers indices = tensor_to_int64s(*inputs[i]);
    columns.values.push_back(inputs[sparse + i]);
    auto& elements = columns.elements.emplace_back(static_cast<std::size_t>(columns.rows));
    for (std::size_t k = 0; 2 * k < indices.size(); ++k)
      elements.at(static_cast<std::size_t>(indices[2 * k])).push_back(static_cast<std::int64_t>(k));
  }
  for (std::size_t i = 3 * sparse; i < inputs.size(); ++i) {
    const std::int64_t width = inputs[i]->shape()[1];
    columns.values.push_back(inputs[i]);
    auto& elements = columns.elements.emplace_back(static_cast<std::size_t>(columns.rows));
    for (std::int64_t r = 0; r < columns.rows; ++r)
      for (std::int64_t k = 0; k < width; ++k) elements[static_cast<std::size_t>(r)].push_back(r * width + k);
  }
  return columns;
}

std::int64_t combinations(const CrossColumns& columns, std::size_t row) {
  std::int64_t count = 1;
  for (const auto& elements : columns.elements) count *= static_cast<std::int64_t>(elements[row].size());
  return count;
}

std::uint64_t shift_mix(std::uint64_t x) { return x ^ (x >> 47); }

/// TensorFlow's FingerprintCat64.
std::uint64_t chained(std::uint64_t first, std::uint64_t second) {
  constexpr std::uint64_t kMul = 0xc6a4a7935bd1e995;
  std::uint64_t result = first ^ kMul;
  result ^= shift_mix(second * kMul) * kMul;
  result *= kMul;
  result = shift_mix(result) * kMul;
  return shift_mix(result);
}

void infer_cross(InferContext& c) {
  const auto sparse = static_cast<int>(c.node().attrs.require<std::int64_t>("N"));
  if (sparse < 0 || c.inputs() < 3 * sparse || c.inputs() == 0) c.fail("has too few inputs");
  for (int i = 0; i < sparse; ++i) {
    require_int64(c, i, 2);
    c.require_rank(sparse + i, 1);
    require_int64(c, 2 * sparse + i, 1);
  }
  for (int i = 3 * sparse; i < c.inputs(); ++i) c.require_rank(i, 2);
  for (int i = sparse; i < c.inputs(); ++i)
    if (i < 2 * sparse || i >= 3 * sparse) require_dtype(c, i, {DType::Int64, DType::String});
  std::vector<const Tensor*> values;
  for (int i = 0; i < c.inputs(); ++i) values.push_back(c.value(i));
  std::int64_t n = Shape::kUnknown;
  if (std::find(values.begin(), values.end(), nullptr) == values.end()) {
    const CrossColumns columns = columns_of(c.node(), values);
    n = 0;
    for (std::size_t r = 0; r < static_cast<std::size_t>(columns.rows); ++r) n += combinations(columns, r);
  }
  c.output(DType::Int64, Shape{n, 2});
  c.output(c.attr("hashed_output", false) ? DType::Int64 : DType::String, Shape{n});
  c.output(DType::Int64, Shape{2});
}

std::vector<Tensor> cross(const Node& node, Values inputs) {
  const CrossColumns columns = columns_of(node, inputs);
  const bool hashed = node.attrs.get("hashed_output", false);
  const auto buckets = static_cast<std::uint64_t>(node.attrs.get("num_buckets", std::int64_t{0}));
  const auto key = static_cast<std::uint64_t>(node.attrs.get("hash_key", std::int64_t{0}));
  constexpr auto kLargest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  Numbers indices, hashes;
  std::vector<std::string> texts;
  std::int64_t widest = 0;
  for (std::int64_t row = 0; row < columns.rows; ++row) {
    const std::int64_t count = combinations(columns, static_cast<std::size_t>(row));
    widest = std::max(widest, count);
    for (std::int64_t k = 0; k < count; ++k) {
      std::uint64_t hash = key;
      std::string text;
      for (std::int64_t c = 0, rest = count, at = k; c < static_cast<std::int64_t>(columns.values.size());
           ++c) {
        const Tensor& values = *columns.values[static_cast<std::size_t>(c)];
        const Numbers& elements =
            columns.elements[static_cast<std::size_t>(c)][static_cast<std::size_t>(row)];
        rest /= static_cast<std::int64_t>(elements.size());
        const std::int64_t element = elements[static_cast<std::size_t>(at / rest)];
        at %= rest;
        const bool is_text = values.dtype() == DType::String;
        const std::int64_t number =
            is_text ? 0 : values.data<std::int64_t>()[static_cast<std::size_t>(element)];
        if (hashed)
          hash = chained(hash, is_text ? farm_fingerprint64(values.string_at(element))
                                       : static_cast<std::uint64_t>(number));
        else
          text += (c > 0 ? "_X_" : "") +
                  (is_text ? std::string(values.string_at(element)) : std::to_string(number));
      }
      indices.insert(indices.end(), {row, k});
      hashes.push_back(static_cast<std::int64_t>(hash % (buckets > 0 ? buckets : kLargest)));
      texts.push_back(std::move(text));
    }
  }
  const Shape n{static_cast<std::int64_t>(hashes.size())};
  return {matrix_of(indices, 2), hashed ? vector_of(hashes) : Tensor::strings(n, texts),
          vector_of({columns.rows, widest})};
}

// -------------------------------------------------------------------------------------------------- counting

void infer_bincount(InferContext& c) {
  require_index_dtype(c, 0);
  require_number(c, 2);
  c.require_rank(1, 0);
  const std::int64_t size = c.value(1) ? tensor_to_int64s(*c.value(1))[0] : Shape::kUnknown;
  if (c.value(1) && size < 0) c.fail(fmt::format("size is {}", size));
  if (!c.shape(0).has_rank()) return c.output(c.dtype(2), Shape::unknown_rank());
  if (c.shape(0).rank() > 2) c.fail("input 0 must be a vector or a matrix, got " + c.shape(0).to_string());
  c.output(c.dtype(2), c.shape(0).rank() == 2 ? Shape{c.shape(0)[0], size} : Shape{size});
}

std::vector<Tensor> bincount(const Node& node, Values inputs) {
  const Numbers x = tensor_to_int64s(*inputs[0]);
  const std::int64_t size = tensor_to_int64s(*inputs[1])[0];
  const bool is_matrix = inputs[0]->shape().rank() == 2;
  const auto columns = static_cast<std::size_t>(is_matrix ? inputs[0]->shape()[1] : inputs[0]->elements());
  const bool binary = node.attrs.get("binary_output", false), weighted = inputs[2]->elements() > 0;
  if (weighted && inputs[2]->elements() != inputs[0]->elements())
    throw InvalidArgument(fmt::format("{} numbers have {} weights", x.size(), inputs[2]->elements()));
  const Shape shape = is_matrix ? Shape{inputs[0]->shape()[0], size} : Shape{size};
  Tensor counts = Tensor::zeros(inputs[2]->dtype(), shape);
  with_number("DenseBincount", counts.dtype(), [&]<class T>() {
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (x[i] < 0) throw InvalidArgument(fmt::format("element {} is {}", i, x[i]));
      if (x[i] >= size) continue;
      T& count =
          counts.data<T>()[i / columns * static_cast<std::size_t>(size) + static_cast<std::size_t>(x[i])];
      count = binary ? T(1) : count + (weighted ? inputs[2]->data<T>()[i] : T(1));
    }
  });
  return {counts};
}

OpTraits reshaped() { return computes().names({"output_indices", "output_shape"}); }
OpTraits filled() {
  return computes().names({"output_indices", "output_values", "empty_row_indicator", "reverse_index_map"});
}
OpTraits crossed() { return computes().names({"output_indices", "output_values", "output_shape"}); }

constexpr FoldedOp kOps[] = {
    {"SparseReshape", 3, 3, infer_reshape, reshape, reshaped},
    {"SparseFillEmptyRows", 4, 4, infer_fill, fill_empty_rows, filled},
    {"SparseCross", 1, -1, infer_cross, cross, crossed},
    {"DenseBincount", 3, 3, infer_bincount, bincount},
};

}  // namespace

void register_sparse_ops(OpRegistry& registry) {
  register_folded_ops(registry, kOps, "its result follows from indices");
}

}  // namespace braid
