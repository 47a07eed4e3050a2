// braid.ReduceToShapeOf(x, like): x summed down to like's shape; undoes the broadcasting of an operand of
// like's shape to x's. With equal shapes it is a copy, which the memory plan does in place.
#include <fmt/format.h>

#include <cstring>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/fused_sums.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/common/joined_axes.h"
#include "engine/ops/common/reduce_loops.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

PreparedKernel copy_kernel(const PrepareContext& c, std::size_t element_bytes) {
  return parallel_kernel(c, c.outputs[0].shape.elements(), kElementGrain,
                         [element_bytes](const KernelArgs& args, std::int64_t begin, std::int64_t end) {
                           if (args.outputs[0] == args.inputs[0]) return;
                           const auto at = static_cast<std::size_t>(begin) * element_bytes;
                           std::memcpy(args.out<char>(0) + at, args.in<char>(0) + at,
                                       static_cast<std::size_t>(end - begin) * element_bytes);
                         });
}

PreparedKernel prepare(const PrepareContext& c) {
  const Shape &from = c.inputs[0].shape, &to = c.inputs[1].shape;
  return with_number("braid.ReduceToShapeOf", c.inputs[0].dtype, [&]<class T>() {
    if (from.elements() == to.elements()) return copy_kernel(c, sizeof(T));
    return prepare_reduce<T>(c, from, repeated_axes(from, to), reduce::loops_of<reduce::Sum, T>());
  });
}

void infer(InferContext& c) {
  require_number(c, 0);
  const Shape &from = c.shape(0), &to = c.shape(1);
  Shape together;
  if (from.is_static() && to.is_static() && !(broadcast_shapes(from, to, together) && together == from))
    c.fail(fmt::format("{} does not broadcast to {}", to.to_string(), from.to_string()));
  c.output(c.dtype(0), to);
}

bool fused_steps(fusion::StepWriter& w) {
  const Shape &from = w.input_info(0).shape, &to = w.input_info(1).shape;
  if (w.input_info(0).dtype == DType::Bool || from.elements() == to.elements()) return false;
  const std::vector<int> axes = repeated_axes(from, to);
  if (fused::over_rows(w, axes)) {
    const int x = w.input(0);
    w.output(0, w.reduce(fusion::RowReduction::Sum, x));
    return true;
  }
  if (fused::over_columns(w, axes)) {
    w.output(0, w.sum_columns(w.input(0)));
    return true;
  }
  const std::int64_t length = fused::over_lines(w, axes);
  if (length == 0) return false;
  w.output(0, w.fold(fusion::RowReduction::Sum, w.input(0), length));
  return true;
}

}  // namespace

void register_reduce_to_shape(OpRegistry& registry) {
  OpDef def;
  def.name = "braid.ReduceToShapeOf";
  def.traits = computes();
  def.shape_like = 1;
  def.same_shape_identity = 0;
  def.min_inputs = def.max_inputs = 2;
  def.infer = infer;
  def.no_gradient_reason = "it is part of a gradient; second derivatives are not made";
  def.cost = cost_per_input(1);
  def.cpu = prepare;
  def.in_place = {{0, 0}};
  def.shape_only = {1};
  registry.add(takes_halves(std::move(def), {.kind = HalfKind::Follower, .inputs = {0}}));
  fusion::rules().add("braid.ReduceToShapeOf", {.steps = fused_steps});
}

}  // namespace braid
