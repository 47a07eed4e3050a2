// Variables: VarHandleOp (attributes dtype, shape, shared_name) names one, ReadVariableOp sees its memory
// (a view of the handle), Assign-, AssignAdd- and AssignSubVariableOp write it, VariableShape tells its
// shape, VarIsInitializedOp true: all variables begin with a value. At run time a handle's pointer is the
// variable's memory; whoever runs the graph binds it, so VarHandleOp has no kernel. Reads and writes of a
// step are ordered by the compiler (engine/schedule).
#include <fmt/format.h>

#include <cstring>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/common/stored_type.h"

namespace braid {
namespace {

void infer_var_handle(InferContext& c) {
  const DType dtype = c.node().attrs.require<DType>("dtype");
  const Shape& shape = c.node().attrs.require<Shape>("shape");
  if (dtype_size(dtype) == 0) c.fail("a variable cannot hold " + std::string(dtype_name(dtype)));
  if (!shape.is_static()) c.fail("a variable's shape must be known, got " + shape.to_string());
  c.output(DType::Resource, shape);
}

void require_handle(const InferContext& c) {
  if (c.dtype(0) != DType::Resource)
    c.fail("input 0 must be a variable's handle, got " + std::string(dtype_name(c.dtype(0))));
}

void infer_read(InferContext& c) {
  require_handle(c);
  c.output(c.node().attrs.require<DType>("dtype"), c.shape(0));
}

void infer_assign(InferContext& c) {
  require_handle(c);
  merged_shape(c, 0, 1);
}

void check_dtype(const PrepareContext& c, DType value) {
  if (value != c.inputs[1].dtype)
    c.fail(fmt::format("the variable holds {}, the value {}", dtype_name(c.inputs[0].dtype),
                       dtype_name(c.inputs[1].dtype)));
}

PreparedKernel prepare_assign(const PrepareContext& c) {
  check_dtype(c, c.inputs[0].dtype);
  const std::size_t element = dtype_size(c.inputs[0].dtype);
  return parallel_kernel(c, c.inputs[0].shape.elements(), kElementGrain,
                         [element](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
                           const std::size_t offset = static_cast<std::size_t>(begin) * element;
                           std::memcpy(a.var<char>(0) + offset, a.in<char>(1) + offset,
                                       static_cast<std::size_t>(end - begin) * element);
                         });
}

template <class S, class T>
void add_scaled(S* w, const T* delta, std::int64_t n, T sign) {
  for (std::int64_t i = 0; i < n; ++i) w[i] = static_cast<S>(static_cast<T>(w[i]) + sign * delta[i]);
}

template <int kSign>
PreparedKernel prepare_assign_add(const PrepareContext& c) {
  check_dtype(c, computed_type(c.inputs[0].dtype));
  return with_stored_number("AssignAddVariableOp", c.inputs[0].dtype, [&]<class S, class T>() {
    return parallel_kernel(c, c.inputs[0].shape.elements(), kElementGrain,
                           [](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
                             add_scaled(a.var<S>(0) + begin, a.in<T>(1) + begin, end - begin, T{kSign});
                           });
  });
}

void infer_variable_shape(InferContext& c) {
  require_handle(c);
  c.output(c.attr("out_type", DType::Int32),
           Shape{c.shape(0).has_rank() ? c.shape(0).rank() : Shape::kUnknown});
}

PreparedKernel prepare_variable_shape(const PrepareContext& c) {
  const Shape shape = c.inputs[0].shape;
  return with_index("VariableShape", c.outputs[0].dtype, [&]<class T>() {
    return serial_kernel([shape](const KernelArgs& a) {
      for (int i = 0; i < shape.rank(); ++i) a.out<T>(0)[i] = static_cast<T>(shape[i]);
    });
  });
}

PreparedKernel prepare_is_initialized(const PrepareContext&) {
  return serial_kernel([](const KernelArgs& a) { *a.out<bool>(0) = true; });
}

OpDef assignment(std::string name, Access access, PrepareFn cpu) {
  return {.name = std::move(name),
          .traits = updates(),
          .min_inputs = 2,
          .max_inputs = 2,
          .infer = infer_assign,
          .no_gradient_reason = "it writes a variable",
          .cpu = std::move(cpu),
          .handles = {access},
          .side_effect = true};
}

}  // namespace

void register_variable(OpRegistry& registry) {
  registry.add({.name = "VarHandleOp",
                .traits = moves().any_type(),
                .infer = infer_var_handle,
                .no_gradient_reason = "a handle has no inputs",
                .stateful = true,
                .role = OpRole::Variable});
  registry.add({.name = "ReadVariableOp",
                .traits = moves().any_type(),
                .min_inputs = 1,
                .max_inputs = 1,
                .infer = infer_read,
                .gradient = [](GradContext& c) { c.set_grad(0, c.grad()); },
                .views = {{0, 0}},
                .handles = {Access::Read},
                .role = OpRole::Read});
  OpDef assign = assignment("AssignVariableOp", Access::Write, prepare_assign);
  assign.traits = assign.traits.any_type();
  registry.add(std::move(assign));
  registry.add(assignment("AssignAddVariableOp", Access::ReadWrite, prepare_assign_add<1>));
  registry.add(assignment("AssignSubVariableOp", Access::ReadWrite, prepare_assign_add<-1>));
  registry.add({.name = "VarIsInitializedOp",
                .traits = computes(),
                .min_inputs = 1,
                .max_inputs = 1,
                .infer = [](InferContext& c) { c.output(DType::Bool, Shape{}); },
                .no_gradient_reason = "the output is bool",
                .cpu = prepare_is_initialized,
                .shape_only = {0}});
  registry.add({.name = "VariableShape",
                .traits = computes().any_type(),
                .min_inputs = 1,
                .max_inputs = 1,
                .infer = infer_variable_shape,
                .no_gradient_reason = "its output is integers",
                .cpu = prepare_variable_shape,
                .shape_only = {0}});
}

}  // namespace braid
