// CUDA kernels of Cast: the formulas of common/half.h. Pairs that models use have kernels over packs; all
// others share one for each result's type, which looks at the operand's type as it runs.
#include "engine/ops/common/cuda/elementwise.cuh"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/half.h"

namespace braid {
namespace {

template <class From, class To>
struct Convert {
  __device__ To operator()(From x) const { return formula::convert_any<To>(x); }
};

using Run = void (*)(const KernelArgs& args, DType from, std::int64_t n);

template <class From, class To>
void run_packs(const KernelArgs& a, DType, std::int64_t n) {
  cuda::map<1, From, To>(a.stream, {a.in<From>(0)}, a.out<To>(0), n, Convert<From, To>{});
}

template <class From, class To>
__device__ To converted(const void* x, std::int64_t i) {
  return formula::convert_any<To>(static_cast<const From*>(x)[i]);
}

template <class To>
__device__ To converted(const void* x, DType from, std::int64_t i) {
  switch (from) {
    case DType::Float32:
      return converted<float, To>(x, i);
    case DType::Float64:
      return converted<double, To>(x, i);
    case DType::Float16:
      return converted<Float16, To>(x, i);
    case DType::BFloat16:
      return converted<BFloat16, To>(x, i);
    case DType::Int8:
      return converted<std::int8_t, To>(x, i);
    case DType::Int16:
      return converted<std::int16_t, To>(x, i);
    case DType::Int32:
      return converted<std::int32_t, To>(x, i);
    case DType::Int64:
      return converted<std::int64_t, To>(x, i);
    case DType::UInt8:
      return converted<std::uint8_t, To>(x, i);
    case DType::UInt16:
      return converted<std::uint16_t, To>(x, i);
    case DType::UInt32:
      return converted<std::uint32_t, To>(x, i);
    case DType::UInt64:
      return converted<std::uint64_t, To>(x, i);
    default:
      return converted<bool, To>(x, i);
  }
}

template <class To>
__global__ void convert_kernel(const void* x, DType from, To* y, std::int64_t n) {
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) y[i] = converted<To>(x, from, i);
}

template <class To>
void run_any(const KernelArgs& a, DType from, std::int64_t n) {
  if (n != 0)
    cuda::launch(convert_kernel<To>, cuda::blocks_for(n), cuda::kThreads, 0, a.stream, a.inputs[0], from,
                 a.out<To>(0), n);
}

template <class F>
Run with_castable(DType dtype, F f) {
  if (dtype == DType::Float16) return f.template operator()<Float16>();
  if (dtype == DType::BFloat16) return f.template operator()<BFloat16>();
  return with_number_or_bool("Cast", dtype, f);
}

bool is_usual(DType dtype) {
  switch (dtype) {
    case DType::Float32:
    case DType::Float64:
    case DType::Int32:
    case DType::Int64:
    case DType::UInt8:
    case DType::Bool:
      return true;
    default:
      return false;
  }
}

/// f.operator()<T>() for a type of is_usual().
template <class F>
Run with_usual(DType dtype, F f) {
  if (dtype == DType::UInt8) return f.template operator()<std::uint8_t>();
  if (dtype == DType::Bool) return f.template operator()<bool>();
  return with_number("Cast", dtype, f);
}

Run run_of(DType from, DType to) {
  if (is_usual(from) && is_usual(to))
    return with_usual(from, [&]<class From>() -> Run {
      return with_usual(to, [&]<class To>() -> Run { return run_packs<From, To>; });
    });
  if (to == DType::Float32 && from == DType::Float16) return run_packs<Float16, float>;
  if (to == DType::Float32 && from == DType::BFloat16) return run_packs<BFloat16, float>;
  if (from == DType::Float32 && to == DType::Float16) return run_packs<float, Float16>;
  if (from == DType::Float32 && to == DType::BFloat16) return run_packs<float, BFloat16>;
  return with_castable(to, [&]<class To>() -> Run { return run_any<To>; });
}

PreparedKernel prepare(const PrepareContext& c) {
  const std::int64_t n = c.outputs[0].shape.elements();
  const DType from = c.inputs[0].dtype;
  PreparedKernel kernel;
  kernel.run = [n, from, run = run_of(from, c.outputs[0].dtype)](const KernelArgs& a) { run(a, from, n); };
  return kernel;
}

}  // namespace

void register_cast_cuda(OpRegistry& registry) { registry.add_cuda("Cast", prepare); }

}  // namespace braid
