// braid.SumOfOuterProducts(a0 [b, 1, r] ... , c0 [b, 1, n] ...) -> y [b, r, n]: y = sum over i of the outer
// products of a_i and c_i of each example; the first half of the inputs are the a_i. Or of lanes of them: two
// inputs a [lanes, b, 1, r] and c [lanes, b, 1, n]. The compiler makes it of the gradient of matrices that
// many row vectors are multiplied with, such as the experts of a mixture, which else are as many tensors as
// large as y and their sum (engine/rewrite/fuse_outer_products.cc).
#include <algorithm>

#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

void infer(InferContext& c) {
  if (c.inputs() % 2 != 0) c.fail("expected as many left as right vectors");
  require_dtype(c, 0, {DType::Float32, DType::Float64});
  Shape left = Shape::unknown_rank(), right = Shape::unknown_rank();
  for (int i = 0; i < c.inputs(); ++i) {
    c.require_same_dtype(0, i);
    Shape& common = i < c.inputs() / 2 ? left : right;
    if (!merge_shapes(common, c.shape(i), common))
      c.fail("vectors of different shapes: " + common.to_string() + " and " + c.shape(i).to_string());
  }
  const bool lanes = c.inputs() == 2 && (left.rank() == 4 || right.rank() == 4);
  const int rank = lanes ? 4 : 3;
  for (const Shape& shape : {left, right})
    if (shape.has_rank() &&
        (shape.rank() != rank || (shape[rank - 2] != 1 && shape[rank - 2] != Shape::kUnknown)))
      c.fail("expected vectors [b, 1, n], or lanes of them, got " + shape.to_string());
  if (!left.has_rank() || !right.has_rank()) return c.output(c.dtype(0), Shape::unknown_rank());
  for (int axis = 0; axis < rank - 2; ++axis)
    if (left[axis] != right[axis] && left[axis] >= 0 && right[axis] >= 0)
      c.fail("vectors of different numbers: " + left.to_string() + " and " + right.to_string());
  c.output(c.dtype(0), {std::max(left[rank - 3], right[rank - 3]), left[rank - 1], right[rank - 1]});
}

template <class T>
PreparedKernel prepare_of(const PrepareContext& c) {
  const Shape& y = c.outputs[0].shape;
  const bool lanes = c.inputs[0].shape.rank() == 4;
  const std::int64_t terms = lanes ? c.inputs[0].shape[0] : static_cast<std::int64_t>(c.inputs.size()) / 2;
  return parallel_kernel(c, y[0], row_grain(terms * y[1] * y[2]),
                         [lanes, terms, examples = y[0], r = y[1], n = y[2]](
                             const KernelArgs& a, std::int64_t begin, std::int64_t end) {
                           T* const out = a.out<T>(0);
                           std::fill(out + begin * r * n, out + end * r * n, T(0));
                           for (std::int64_t b = begin; b < end; ++b)
                             for (std::int64_t i = 0; i < terms; ++i) {
                               const T* const left =
                                   lanes ? a.in<T>(0) + i * examples * r : a.in<T>(static_cast<int>(i));
                               const T* const right = lanes ? a.in<T>(1) + i * examples * n
                                                            : a.in<T>(static_cast<int>(terms + i));
                               for (std::int64_t row = 0; row < r; ++row) {
                                 const T factor = left[b * r + row];
                                 T* const to = out + (b * r + row) * n;
                                 for (std::int64_t j = 0; j < n; ++j) to[j] += factor * right[b * n + j];
                               }
                             }
                         });
}

PreparedKernel prepare(const PrepareContext& c) {
  return c.outputs[0].dtype == DType::Float64 ? prepare_of<double>(c) : prepare_of<float>(c);
}

Cost cost(const InferContext& c, std::span<const OutputInfo> outputs) {
  const double elements = outputs[0].shape.is_static() ? static_cast<double>(outputs[0].shape.elements()) : 0;
  const Shape& left = c.shape(0);
  const double terms = left.has_rank() && left.rank() == 4 ? static_cast<double>(left[0]) : c.inputs() / 2.0;
  return {2 * terms * elements, traffic_bytes(c, outputs)};
}

}  // namespace

void register_outer_products(OpRegistry& registry) {
  OpDef def;
  def.name = "braid.SumOfOuterProducts";
  def.traits = computes();
  def.min_inputs = 2;
  def.max_inputs = -1;
  def.infer = infer;
  def.no_gradient_reason = "fusion makes it after differentiation";
  def.cost = cost;
  def.cpu = prepare;
  registry.add(std::move(def));
}

}  // namespace braid
