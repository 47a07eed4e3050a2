// CUDA kernels of the assignments to variables.
#include "engine/ops/common/cuda/elementwise.cuh"
#include "engine/ops/common/cuda/row_groups.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/scatter_rows.h"

namespace braid {
namespace {

void check_dtype(const PrepareContext& c) {
  if (c.inputs[0].dtype != c.inputs[1].dtype)
    c.fail("the variable holds " + std::string(dtype_name(c.inputs[0].dtype)) + ", the value " +
           std::string(dtype_name(c.inputs[1].dtype)));
}

PreparedKernel prepare_assign(const PrepareContext& c) {
  check_dtype(c);
  const auto bytes = static_cast<std::uint64_t>(c.inputs[0].shape.elements()) * dtype_size(c.inputs[0].dtype);
  PreparedKernel kernel;
  kernel.run = [bytes, device = c.accelerator](const KernelArgs& a) {
    if (bytes != 0) device->copy(a.inputs[0], a.inputs[1], bytes, a.stream);
  };
  return kernel;
}

template <class Op>
struct Apply {
  template <class T>
  __device__ T operator()(T w, T delta) const {
    return Op::apply(w, delta);
  }
};

template <class Op>
PreparedKernel prepare_add(const PrepareContext& c) {
  check_dtype(c);
  const std::int64_t n = c.inputs[0].shape.elements();
  return with_number(c.node.op->name, c.inputs[0].dtype, [&]<class T>() {
    PreparedKernel kernel;
    kernel.run = [n](const KernelArgs& a) {
      cuda::map<2, T, T>(a.stream, {a.in<T>(0), a.in<T>(1)}, a.var<T>(0), n, Apply<Op>{});
    };
    return kernel;
  });
}

bool is_number(const Node&, std::span<const OutputInfo> inputs) {
  return inputs[0].dtype == inputs[1].dtype && cuda::is_row_type(inputs[1].dtype);
}

}  // namespace

void register_variable_cuda(OpRegistry& registry) {
  registry.add_cuda("AssignVariableOp", prepare_assign, [](const Node&, std::span<const OutputInfo> inputs) {
    return dtype_size(inputs[1].dtype) != 0;
  });
  registry.add_cuda("AssignAddVariableOp", prepare_add<scatter::Add>, is_number);
  registry.add_cuda("AssignSubVariableOp", prepare_add<scatter::Sub>, is_number);
}

}  // namespace braid
