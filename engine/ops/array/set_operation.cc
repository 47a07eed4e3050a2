// DenseToDenseSetOperation(a [..., n], b [..., m]) -> indices [k, rank], values [k], shape [rank]: for each
// row, the sorted distinct elements of a - b, b - a, the intersection or the union (attribute set_operation),
// as a sparse tensor whose last size is that of the largest set. How many there are must be known before the
// program runs, from both values. TensorFlow 1 checks with it whether weights of a loss broadcast.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <vector>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

enum class SetOperation { Minus, ReversedMinus, Intersection, Union };

std::optional<SetOperation> operation_of(std::string_view name) {
  if (name == "a-b") return SetOperation::Minus;
  if (name == "b-a") return SetOperation::ReversedMinus;
  if (name == "intersection") return SetOperation::Intersection;
  if (name == "union") return SetOperation::Union;
  return std::nullopt;
}

template <class T>
std::vector<T> set_of(const T* x, std::int64_t n) {
  std::vector<T> set(x, x + n);
  std::sort(set.begin(), set.end());
  set.erase(std::unique(set.begin(), set.end()), set.end());
  return set;
}

template <class T>
std::vector<T> combined(SetOperation operation, const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<T> result;
  const auto out = std::back_inserter(result);
  switch (operation) {
    case SetOperation::Minus:
      std::set_difference(a.begin(), a.end(), b.begin(), b.end(), out);
      break;
    case SetOperation::ReversedMinus:
      std::set_difference(b.begin(), b.end(), a.begin(), a.end(), out);
      break;
    case SetOperation::Intersection:
      std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), out);
      break;
    case SetOperation::Union:
      std::set_union(a.begin(), a.end(), b.begin(), b.end(), out);
      break;
  }
  return result;
}

std::int64_t rows_of(const Shape& shape) {
  std::int64_t rows = 1;
  for (int axis = 0; axis + 1 < shape.rank(); ++axis) rows *= shape[axis];
  return rows;
}

/// Calls use(row, set) for each.
template <class T, class Use>
void for_sets(SetOperation operation, const Shape& a_shape, const T* a, const Shape& b_shape, const T* b,
              Use use) {
  const std::int64_t n = a_shape[a_shape.rank() - 1], m = b_shape[b_shape.rank() - 1];
  for (std::int64_t row = 0; row < rows_of(a_shape); ++row)
    use(row, combined(operation, set_of(a + row * n, n), set_of(b + row * m, m)));
}

void infer(InferContext& c) {
  c.require_same_dtype(0, 1);
  require_dtype(c, 0, {DType::Int32, DType::Int64});
  const auto operation = operation_of(c.attr("set_operation", std::string()));
  if (!operation)
    c.fail("set_operation must be a-b, b-a, intersection or union, not '" +
           c.attr("set_operation", std::string()) + "'");
  const Shape &a = c.shape(0), &b = c.shape(1);
  const int rank = a.has_rank() ? a.rank() : b.has_rank() ? b.rank() : -1;
  if (a.has_rank() && b.has_rank()) {
    bool fits = a.rank() == b.rank() && a.rank() > 0;
    for (int axis = 0; fits && axis + 1 < a.rank(); ++axis)
      fits = a[axis] == b[axis] || a[axis] == Shape::kUnknown || b[axis] == Shape::kUnknown;
    if (!fits) c.fail(fmt::format("sets {} and {} have other rows", a.to_string(), b.to_string()));
  }
  std::int64_t count = Shape::kUnknown;
  if (const Tensor* x = c.value(0), *y = c.value(1); x && y) {
    count = 0;
    with_index("DenseToDenseSetOperation", c.dtype(0), [&]<class T>() {
      const auto of = [](const Tensor& t) { return reinterpret_cast<const T*>(t.raw()); };
      for_sets(
          *operation, x->shape(), of(*x), y->shape(), of(*y),
          [&](std::int64_t, const std::vector<T>& set) { count += static_cast<std::int64_t>(set.size()); });
    });
  }
  c.output(DType::Int64, Shape{count, rank});
  c.output(c.dtype(0), Shape{count});
  c.output(DType::Int64, Shape{rank});
}

PreparedKernel prepare(const PrepareContext& c) {
  const Shape a = c.inputs[0].shape, b = c.inputs[1].shape;
  const SetOperation operation = *operation_of(c.attr("set_operation", std::string()));
  return with_index("DenseToDenseSetOperation", c.inputs[0].dtype, [&]<class T>() {
    PreparedKernel kernel;
    kernel.run = [a, b, operation](const KernelArgs& args) {
      auto *indices = args.out<std::int64_t>(0), *shape = args.out<std::int64_t>(2);
      T* values = args.out<T>(1);
      const int rank = a.rank();
      std::int64_t largest = 0;
      for_sets(operation, a, args.in<T>(0), b, args.in<T>(1),
               [&](std::int64_t row, const std::vector<T>& set) {
                 largest = std::max(largest, static_cast<std::int64_t>(set.size()));
                 for (std::size_t k = 0; k < set.size(); ++k, indices += rank) {
                   *values++ = set[k];
                   indices[rank - 1] = static_cast<std::int64_t>(k);
                   std::int64_t rest = row;
                   for (int axis = rank - 1; axis-- > 0; rest /= a[axis]) indices[axis] = rest % a[axis];
                 }
               });
      for (int axis = 0; axis + 1 < rank; ++axis) shape[axis] = a[axis];
      shape[rank - 1] = largest;
    };
    return kernel;
  });
}

}  // namespace

void register_set_operation(OpRegistry& registry) {
  registry.add({.name = "DenseToDenseSetOperation",
                .traits = computes().any_type().names({"result_indices", "result_values", "result_shape"}),
                .min_inputs = 2,
                .max_inputs = 2,
                .infer = infer,
                .no_gradient_reason = "which elements are equal decides its shape",
                .cpu = prepare,
                .shape_values = {0, 1}});
}

}  // namespace braid
