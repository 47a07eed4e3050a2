// Const (attributes value, dtype) and Placeholder (dtype, shape): the sources of a graph.
// A constant's value is known at compile time. A placeholder's memory is the feed's; one that is not fed is
// refused when the program is bound.
#include <fmt/format.h>

#include <cstring>

#include "engine/ops/common/kernel_util.h"

namespace braid {
namespace {

void infer_const(InferContext& c) {
  const Tensor& value = c.node().attrs.require<Tensor>("value");
  const DType declared = c.attr("dtype", value.dtype());
  if (declared != value.dtype())
    c.fail(fmt::format("attribute dtype is {}, but the value is {}", dtype_name(declared),
                       dtype_name(value.dtype())));
  c.output(value.dtype(), value.shape());
}

PreparedKernel prepare_const(const PrepareContext& c) {
  return serial_kernel([value = c.node.attrs.require<Tensor>("value")](const KernelArgs& a) {
    std::memcpy(a.outputs[0], value.raw(), value.bytes());
  });
}

void infer_placeholder(InferContext& c) {
  c.output(c.node().attrs.require<DType>("dtype"), c.attr("shape", Shape::unknown_rank()));
}

PreparedKernel prepare_placeholder(const PrepareContext& c) { c.fail("it is needed but not fed"); }

}  // namespace

void register_constant(OpRegistry& registry) {
  registry.add({.name = "Const",
                .traits = moves().any_type().type_attrs({}),
                .infer = infer_const,
                .no_gradient_reason = "a constant has no inputs",
                .cpu = prepare_const,
                .role = OpRole::Constant});
  registry.add({.name = "Placeholder",
                .traits = moves().any_type().type_attrs({}),
                .infer = infer_placeholder,
                .no_gradient_reason = "a feed has no inputs",
                .cpu = prepare_placeholder,
                .stateful = true,
                .role = OpRole::Placeholder});
}

}  // namespace braid
