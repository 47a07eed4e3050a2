// Ops that pass values on: Identity, Snapshot, IdentityN, PlaceholderWithDefault, StopGradient (the gradient
// ends here), PreventGradient (asking for the gradient is an error), EnsureShape (attribute shape), NoOp
// (joins control edges). Those with one output are views: they have no kernel and cost nothing.
#include "engine/ops/common/box_plan.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

void pass_gradient(GradContext& c) { c.set_grad(0, c.grad()); }
void stop_gradient(GradContext&) {}

/// One input, one output in the same memory.
OpDef view_op(std::string name, GradFn gradient, std::string no_gradient_reason = {}) {
  return {.name = std::move(name),
          .traits = moves().any_type(),
          .min_inputs = 1,
          .max_inputs = 1,
          .infer = infer_same_as_first,
          .gradient = std::move(gradient),
          .no_gradient_reason = std::move(no_gradient_reason),
          .views = {{0, 0}}};
}

void infer_placeholder_with_default(InferContext& c) {
  const Shape shape = c.attr("shape", Shape::unknown_rank());
  Shape merged;
  if (!merge_shapes(shape, c.shape(0), merged))
    c.fail("the default has shape " + c.shape(0).to_string() + ", attribute shape is " + shape.to_string());
  c.output(c.dtype(0), c.shape(0));
}

void infer_ensure_shape(InferContext& c) {
  const Shape& wanted = c.node().attrs.require<Shape>("shape");
  Shape merged;
  if (!merge_shapes(wanted, c.shape(0), merged))
    c.fail("the input has shape " + c.shape(0).to_string() + ", it must have " + wanted.to_string());
  c.output(c.dtype(0), merged);
}

void infer_identity_n(InferContext& c) {
  for (int i = 0; i < c.inputs(); ++i) c.output(c.dtype(i), c.shape(i));
}

void identity_n_gradient(GradContext& c) {
  for (int i = 0; i < static_cast<int>(c.node().inputs.size()); ++i)
    if (c.grad(i).valid()) c.set_grad(i, c.grad(i));
}

PreparedKernel prepare_no_op(const PrepareContext&) {
  return serial_kernel([](const KernelArgs&) {});
}

}  // namespace

BoxPlan plans::identity_n(const PrepareContext& c) {
  BoxPlan plan;
  for (int i = 0; i < static_cast<int>(c.inputs.size()); ++i) {
    const OutputInfo& info = c.inputs[static_cast<std::size_t>(i)];
    if (dtype_size(info.dtype) == 0) c.fail("no kernel for " + std::string(dtype_name(info.dtype)));
    plan.parts.push_back({BoxCopy({{info.shape.elements(), 1, 1}}, 0, 0, dtype_size(info.dtype)), i, i});
  }
  return plan;
}

void register_identity(OpRegistry& registry) {
  OpDef identity = view_op("Identity", pass_gradient);
  identity.role = OpRole::Identity;
  registry.add(std::move(identity));
  registry.add(view_op("Snapshot", pass_gradient));
  registry.add(view_op("StopGradient", stop_gradient));
  registry.add(view_op("PreventGradient", nullptr, "the graph forbids it (PreventGradient)"));
  OpDef with_default = view_op("PlaceholderWithDefault", pass_gradient);
  with_default.infer = infer_placeholder_with_default;
  with_default.stateful = true;  // never folded: its value may be fed
  with_default.stands_for = 0;
  registry.add(std::move(with_default));
  OpDef ensure = view_op("EnsureShape", pass_gradient);
  ensure.same_shape_identity = 0;  // shapes that do not fit are refused before
  ensure.infer = infer_ensure_shape;
  registry.add(std::move(ensure));
  registry.add({.name = "IdentityN",
                .traits = moves().any_type().output_list(),
                .min_inputs = 1,
                .max_inputs = -1,
                .infer = infer_identity_n,
                .gradient = identity_n_gradient,
                .cpu = prepare_boxes<plans::identity_n>});
  registry.add({.name = "NoOp",
                .traits = updates(),
                .infer = [](InferContext&) {},
                .no_gradient_reason = "it has no outputs",
                .cpu = prepare_no_op,
                .side_effect = true,
                .role = OpRole::Nothing});
}

}  // namespace braid
