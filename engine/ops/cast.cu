// CUDA kernels of Cast between float32, float64, int32, int64, uint8 and bool: the formula of
// common/scalar_formulas.h.
#include "engine/ops/common/cuda/elementwise.cuh"
#include "engine/ops/common/scalar_formulas.h"

namespace braid {
namespace {

template <class From, class To>
struct Convert {
  __device__ To operator()(From x) const { return formula::convert<To>(x); }
};

using Run = void (*)(const KernelArgs& args, std::int64_t n);

template <class From, class To>
void run(const KernelArgs& a, std::int64_t n) {
  cuda::map<1, From, To>(a.stream, {a.in<From>(0)}, a.out<To>(0), n, Convert<From, To>{});
}

/// f.operator()<T>() for the type; null for those that stay on the CPU.
template <class F>
Run with_type(DType dtype, F f) {
  switch (dtype) {
    case DType::Float32:
      return f.template operator()<float>();
    case DType::Float64:
      return f.template operator()<double>();
    case DType::Int32:
      return f.template operator()<std::int32_t>();
    case DType::Int64:
      return f.template operator()<std::int64_t>();
    case DType::UInt8:
      return f.template operator()<std::uint8_t>();
    case DType::Bool:
      return f.template operator()<bool>();
    default:
      return nullptr;
  }
}

Run run_of(DType from, DType to) {
  return with_type(from, [&]<class From>() -> Run {
    return with_type(to, [&]<class To>() -> Run { return run<From, To>; });
  });
}

PreparedKernel prepare(const PrepareContext& c) {
  const std::int64_t n = c.outputs[0].shape.elements();
  PreparedKernel kernel;
  kernel.run = [n, run = run_of(c.inputs[0].dtype, c.outputs[0].dtype)](const KernelArgs& a) { run(a, n); };
  return kernel;
}

}  // namespace

void register_cast_cuda(OpRegistry& registry) {
  registry.add_cuda("Cast", prepare, [](const Node& node, std::span<const OutputInfo> inputs) {
    return run_of(inputs[0].dtype, node.attrs.require<DType>("DstT")) != nullptr;
  });
}

}  // namespace braid
