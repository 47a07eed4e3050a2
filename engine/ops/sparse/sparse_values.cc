// Ops of sparse tensors in coordinates (indices [n, rank], values [n], shape [rank]) whose results follow
// from where the elements are. Like those of sparse_ops.cc they have no kernels, but values for known inputs.
//   SparseReorder(indices, values, shape): the elements in row-major order
//   SparseConcat(indices..., values..., shapes...), attributes N, concat_dim: one behind the other
//   SparseSlice(indices, values, shape, start, size): the elements inside, counted from `start`
//   SparseReduceSum, SparseReduceMax(indices, values, shape, axes), attribute keep_dims: a dense tensor, zero
//     where nothing is
//   SparseDenseCwiseAdd, Mul, Div(indices, values, shape, dense): the values with those of `dense`, broadcast
//   SparseTensorDenseAdd(indices, values, shape, dense): `dense` with the values added
//   SparseSoftmax(indices, values, shape): of the elements of each row along the last axis
// Thread rule: pure functions.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/error.h"
#include "engine/ops/common/binary_formulas.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/folded_ops.h"
#include "engine/ops/common/picked_elements.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

using Values = std::span<const Tensor* const>;
using Numbers = std::vector<std::int64_t>;

Tensor vector_of(const Numbers& numbers) {
  return Tensor::from<std::int64_t>({static_cast<std::int64_t>(numbers.size())}, numbers);
}

/// The coordinates of each element. Throws: InvalidArgument for one outside of the shape.
std::vector<Numbers> coordinates(const Tensor& indices, const Numbers& shape) {
  const Numbers flat = tensor_to_int64s(indices);
  std::vector<Numbers> places;
  for (std::int64_t k = 0; k < indices.shape()[0]; ++k) {
    const auto first = flat.begin() + k * indices.shape()[1];
    places.emplace_back(first, first + indices.shape()[1]);
    for (std::size_t d = 0; d < shape.size(); ++d)
      if (places.back()[d] < 0 || places.back()[d] >= shape[d])
        throw InvalidArgument(fmt::format("element {} is at [{}], outside of shape [{}]", k,
                                          fmt::join(places.back(), ", "), fmt::join(shape, ", ")));
  }
  return places;
}

Tensor matrix_of(const std::vector<Numbers>& places, std::size_t rank) {
  Numbers flat;
  for (const Numbers& place : places) flat.insert(flat.end(), place.begin(), place.end());
  return Tensor::from<std::int64_t>(
      {static_cast<std::int64_t>(places.size()), static_cast<std::int64_t>(rank)}, flat);
}

Tensor picked(const Tensor& values, const Numbers& from) {
  return picked_elements(values, values, from, Shape{static_cast<std::int64_t>(from.size())});
}

std::int64_t row_major(const Numbers& place, const Numbers& shape) {
  std::int64_t at = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) at = at * shape[d] + place[d];
  return at;
}

void require_sparse(InferContext& c, int indices, int values, int shape) {
  require_dtype(c, indices, {DType::Int64});
  require_dtype(c, shape, {DType::Int64});
  c.require_rank(indices, 2);
  c.require_rank(values, 1);
  c.require_rank(shape, 1);
}

std::int64_t count_of(const InferContext& c, int indices) {
  return c.shape(indices).has_rank() ? c.shape(indices)[0] : Shape::kUnknown;
}
std::int64_t rank_of(const InferContext& c, int indices) {
  return c.shape(indices).has_rank() ? c.shape(indices)[1] : Shape::kUnknown;
}

// ---------------------------------------------------------------------------------------------------- places

void infer_reorder(InferContext& c) {
  require_sparse(c, 0, 1, 2);
  c.output(DType::Int64, c.shape(0).has_rank() ? c.shape(0) : Shape{-1, -1});
  c.output(c.dtype(1), Shape{count_of(c, 0)});
}

std::vector<Tensor> reorder(const Node&, Values inputs) {
  const std::vector<Numbers> places = coordinates(*inputs[0], tensor_to_int64s(*inputs[2]));
  Numbers order(places.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return places[static_cast<std::size_t>(a)] < places[static_cast<std::size_t>(b)];
  });
  std::vector<Numbers> sorted;
  for (const std::int64_t k : order) sorted.push_back(places[static_cast<std::size_t>(k)]);
  return {matrix_of(sorted, static_cast<std::size_t>(inputs[0]->shape()[1])), picked(*inputs[1], order)};
}

void infer_concat(InferContext& c) {
  const auto n = static_cast<int>(c.node().attrs.require<std::int64_t>("N"));
  if (n < 1 || c.inputs() != 3 * n) c.fail("needs three inputs for each of its N tensors");
  std::int64_t count = 0;
  for (int i = 0; i < n; ++i) {
    require_sparse(c, i, n + i, 2 * n + i);
    c.require_same_dtype(n, n + i);
    count = count == Shape::kUnknown || count_of(c, i) == Shape::kUnknown ? Shape::kUnknown
                                                                          : count + count_of(c, i);
  }
  c.output(DType::Int64, Shape{count, rank_of(c, 0)});
  c.output(c.dtype(n), Shape{count});
  c.output(DType::Int64, Shape{rank_of(c, 0)});
}

/// Vectors of one type, one behind the other.
Tensor joined(Values vectors) {
  std::int64_t total = 0;
  for (const Tensor* vector : vectors) total += vector->elements();
  if (vectors[0]->dtype() == DType::String) {
    std::vector<std::string> texts;
    for (const Tensor* vector : vectors)
      for (std::int64_t k = 0; k < vector->elements(); ++k) texts.emplace_back(vector->string_at(k));
    return Tensor::strings({total}, texts);
  }
  Tensor all(vectors[0]->dtype(), Shape{total});
  auto* to = all.raw();
  for (const Tensor* vector : vectors)
    to = std::copy_n(vector->raw(), static_cast<std::size_t>(vector->elements()) * dtype_size(all.dtype()),
                     to);
  return all;
}

std::vector<Tensor> concat(const Node& node, Values inputs) {
  const std::size_t n = inputs.size() / 3;
  Numbers shape = tensor_to_int64s(*inputs[2 * n]);
  const auto rank = static_cast<std::int64_t>(shape.size());
  const auto asked = node.attrs.require<std::int64_t>("concat_dim");
  const auto axis = static_cast<std::size_t>(asked < 0 ? asked + rank : asked);
  if (axis >= shape.size()) throw InvalidArgument(fmt::format("axis {} of {} axes", asked, rank));
  // Elements are in row-major order of the whole: those of one row come tensor by tensor.
  std::multimap<Numbers, std::int64_t> sorted;  // -> which of all values
  std::int64_t offset = 0, value = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const Numbers own = tensor_to_int64s(*inputs[2 * n + i]);
    if (own.size() != shape.size()) throw InvalidArgument("the tensors differ in rank");
    for (std::size_t d = 0; d < own.size(); ++d)
      if (d != axis && own[d] != shape[d]) throw InvalidArgument("the tensors differ beside the joined axis");
    for (Numbers& place : coordinates(*inputs[i], own)) {
      place[axis] += offset;
      sorted.emplace(std::move(place), value++);
    }
    offset += own[axis];
  }
  shape[axis] = offset;
  std::vector<Numbers> places;
  Numbers from;
  for (const auto& [place, source] : sorted) {
    places.push_back(place);
    from.push_back(source);
  }
  return {matrix_of(places, shape.size()), picked(joined(inputs.subspan(n, n)), from), vector_of(shape)};
}

struct Sliced {
  std::vector<Numbers> places;
  Numbers from, shape;
};

Sliced sliced(const Tensor& indices, const Numbers& shape, const Numbers& start, const Numbers& size) {
  if (start.size() != shape.size() || size.size() != shape.size())
    throw InvalidArgument("start and size need a number for each axis");
  Sliced result;
  for (std::size_t d = 0; d < shape.size(); ++d)
    result.shape.push_back(std::max<std::int64_t>(std::min(size[d], shape[d] - start[d]), 0));
  std::int64_t k = -1;
  for (Numbers& place : coordinates(indices, shape)) {
    ++k;
    bool inside = true;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      place[d] -= start[d];
      inside = inside && place[d] >= 0 && place[d] < result.shape[d];
    }
    if (!inside) continue;
    result.places.push_back(std::move(place));
    result.from.push_back(k);
  }
  return result;
}

Sliced sliced(Values inputs) {
  return sliced(*inputs[0], tensor_to_int64s(*inputs[2]), tensor_to_int64s(*inputs[3]),
                tensor_to_int64s(*inputs[4]));
}

void infer_slice(InferContext& c) {
  require_sparse(c, 0, 1, 2);
  for (const int i : {3, 4}) {
    require_dtype(c, i, {DType::Int64});
    c.require_rank(i, 1);
  }
  std::int64_t n = Shape::kUnknown;
  if (c.value(0) && c.value(2) && c.value(3) && c.value(4)) {
    const Tensor* values[] = {c.value(0), nullptr, c.value(2), c.value(3), c.value(4)};
    n = static_cast<std::int64_t>(sliced(values).from.size());
  }
  c.output(DType::Int64, Shape{n, rank_of(c, 0)});
  c.output(c.dtype(1), Shape{n});
  c.output(DType::Int64, Shape{rank_of(c, 0)});
}

std::vector<Tensor> slice(const Node&, Values inputs) {
  const Sliced s = sliced(inputs);
  return {matrix_of(s.places, s.shape.size()), picked(*inputs[1], s.from), vector_of(s.shape)};
}

// ---------------------------------------------------------------------------------------------------- values

void infer_reduce(InferContext& c) {
  require_sparse(c, 0, 1, 2);
  require_number(c, 1);
  require_dtype(c, 3, {DType::Int32});
  if (!c.value(2) || !c.value(3)) return c.output(c.dtype(1), Shape::unknown_rank());
  const Shape shape(tensor_to_int64s(*c.value(2)));
  c.output(c.dtype(1), reduced_shape(shape, *reduction_axes(c, 3, shape.rank()), c.attr("keep_dims", false)));
}

template <bool kMax>
std::vector<Tensor> reduce(const Node& node, Values inputs) {
  const Numbers shape = tensor_to_int64s(*inputs[2]);
  const auto rank = static_cast<std::int64_t>(shape.size());
  std::vector<int> axes;
  for (const std::int64_t axis : tensor_to_int64s(*inputs[3]))
    axes.push_back(static_cast<int>(axis < 0 ? axis + rank : axis));
  const Shape out = reduced_shape(Shape(shape), axes, node.attrs.get("keep_dims", false));
  Tensor result = Tensor::zeros(inputs[1]->dtype(), out);
  std::vector<bool> has(static_cast<std::size_t>(out.elements()));
  const std::vector<Numbers> places = coordinates(*inputs[0], shape);
  with_number("SparseReduce", result.dtype(), [&]<class T>() {
    for (std::size_t k = 0; k < places.size(); ++k) {
      std::int64_t flat = 0;
      for (int d = 0; d < static_cast<int>(rank); ++d)
        if (std::find(axes.begin(), axes.end(), d) == axes.end())
          flat = flat * shape[static_cast<std::size_t>(d)] + places[k][static_cast<std::size_t>(d)];
      const auto at = static_cast<std::size_t>(flat);
      T& y = result.data<T>()[at];
      const T x = inputs[1]->data<T>()[k];
      y = !has[at] ? x : kMax ? std::max(x, y) : static_cast<T>(y + x);
      has[at] = true;
    }
  });
  return {result};
}

void infer_with_dense(InferContext& c, bool dense_result) {
  require_sparse(c, 0, 1, 2);
  require_number(c, 1);
  c.require_same_dtype(1, 3);
  c.output(c.dtype(1), dense_result ? c.shape(3) : Shape{count_of(c, 0)});
}

/// The element of `dense` that is broadcast to a place of a tensor of more, or as many, axes.
std::int64_t broadcast_place(const Numbers& place, const Shape& dense) {
  if (dense.rank() > static_cast<int>(place.size())) throw InvalidArgument("the dense tensor has more axes");
  std::int64_t at = 0;
  const std::size_t skipped = place.size() - static_cast<std::size_t>(dense.rank());
  for (int d = 0; d < dense.rank(); ++d) {
    const std::int64_t i = dense[d] == 1 ? 0 : place[skipped + static_cast<std::size_t>(d)];
    if (i >= dense[d]) throw InvalidArgument("shape " + dense.to_string() + " is not broadcast to it");
    at = at * dense[d] + i;
  }
  return at;
}

template <class Op>
std::vector<Tensor> with_dense(const Node&, Values inputs) {
  const std::vector<Numbers> places = coordinates(*inputs[0], tensor_to_int64s(*inputs[2]));
  Tensor result(inputs[1]->dtype(), inputs[1]->shape());
  with_number("SparseDenseCwise", result.dtype(), [&]<class T>() {
    for (std::size_t k = 0; k < places.size(); ++k) {
      const T x = inputs[1]->data<T>()[k];
      const T y =
          inputs[3]->data<T>()[static_cast<std::size_t>(broadcast_place(places[k], inputs[3]->shape()))];
      result.data<T>()[k] = Op::apply(x, y);
    }
  });
  return {result};
}

std::vector<Tensor> add_to_dense(const Node&, Values inputs) {
  const Numbers shape = tensor_to_int64s(*inputs[2]);
  if (Shape(shape) != inputs[3]->shape())
    throw InvalidArgument("the dense tensor has shape " + inputs[3]->shape().to_string() +
                          ", the sparse one " + Shape(shape).to_string());
  Numbers all(static_cast<std::size_t>(inputs[3]->elements()));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  Tensor result = picked_elements(*inputs[3], *inputs[3], all, Shape(shape));
  const std::vector<Numbers> places = coordinates(*inputs[0], shape);
  with_number("SparseTensorDenseAdd", result.dtype(), [&]<class T>() {
    for (std::size_t k = 0; k < places.size(); ++k)
      result.data<T>()[static_cast<std::size_t>(row_major(places[k], shape))] += inputs[1]->data<T>()[k];
  });
  return {result};
}

void infer_softmax(InferContext& c) {
  require_sparse(c, 0, 1, 2);
  require_floating(c, 1);
  c.output(c.dtype(1), Shape{count_of(c, 0)});
}

std::vector<Tensor> softmax(const Node&, Values inputs) {
  std::vector<Numbers> rows = coordinates(*inputs[0], tensor_to_int64s(*inputs[2]));
  for (Numbers& row : rows) row.pop_back();
  Tensor result(inputs[1]->dtype(), inputs[1]->shape());
  with_float("SparseSoftmax", result.dtype(), [&]<class T>() {
    const auto x = inputs[1]->data<T>();
    const auto y = result.data<T>();
    for (std::size_t begin = 0, end; begin < rows.size(); begin = end) {
      end = begin + 1;
      while (end < rows.size() && rows[end] == rows[begin]) ++end;
      const T largest = *std::max_element(x.begin() + static_cast<std::ptrdiff_t>(begin),
                                          x.begin() + static_cast<std::ptrdiff_t>(end));
      T sum{};
      for (std::size_t k = begin; k < end; ++k) sum += y[k] = std::exp(x[k] - largest);
      for (std::size_t k = begin; k < end; ++k) y[k] /= sum;
    }
  });
  return {result};
}

OpTraits reordered() { return computes().names({"output_indices", "output_values"}); }
OpTraits matrix() { return computes().names({"output_indices", "output_values", "output_shape"}); }

constexpr FoldedOp kOps[] = {
    {"SparseReorder", 3, 3, infer_reorder, reorder, reordered},
    {"SparseConcat", 3, -1, infer_concat, concat, matrix},
    {"SparseSlice", 5, 5, infer_slice, slice, matrix},
    {"SparseReduceSum", 4, 4, infer_reduce, reduce<false>},
    {"SparseReduceMax", 4, 4, infer_reduce, reduce<true>},
    {"SparseDenseCwiseAdd", 4, 4, [](InferContext& c) { infer_with_dense(c, false); },
     with_dense<binary::Add>},
    {"SparseDenseCwiseMul", 4, 4, [](InferContext& c) { infer_with_dense(c, false); },
     with_dense<binary::Mul>},
    {"SparseDenseCwiseDiv", 4, 4, [](InferContext& c) { infer_with_dense(c, false); },
     with_dense<binary::Div>},
    {"SparseTensorDenseAdd", 4, 4, [](InferContext& c) { infer_with_dense(c, true); }, add_to_dense},
    {"SparseSoftmax", 3, 3, infer_softmax, softmax},
};

}  // namespace

void register_sparse_values(OpRegistry& registry) {
  register_folded_ops(registry, kOps, "it has no kernel, its values are known before a program runs");
}

}  // namespace braid
