// L2Loss: half the sum of squares, a scalar. Gradient: x dy.
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/grad_util.h"
#include "engine/ops/common/reduce_loops.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

PreparedKernel prepare(const PrepareContext& c) {
  const Shape flat{c.inputs[0].shape.elements()};
  return with_float("L2Loss", c.inputs[0].dtype, [&]<class T>() {
    return prepare_reduce<T>(c, flat, {0}, reduce::loops_of<reduce::SumOfSquares, T>(), T(2));
  });
}

}  // namespace

void register_l2_loss(OpRegistry& registry) {
  OpDef def;
  def.name = "L2Loss";
  def.traits = computes();
  def.min_inputs = def.max_inputs = 1;
  def.infer = [](InferContext& c) {
    require_floating(c, 0);
    c.output(c.dtype(0), Shape{});
  };
  def.gradient = [](GradContext& c) { c.set_grad(0, grad::mul(c, c.input(0), c.grad())); };
  def.cost = cost_per_input(2);
  def.cpu = prepare;
  registry.add(std::move(def));
}

}  // namespace braid
