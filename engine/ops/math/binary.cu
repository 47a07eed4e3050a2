// CUDA kernels of the elementwise ops of two inputs: the formulas of common/binary_formulas.h. A quotient of
// integers by zero is reported as no finite number. Powers of integers, which refuse negative exponents, stay
// on the CPU.
#include "engine/ops/common/binary_formulas.h"
#include "engine/ops/common/cuda/elementwise.cuh"
#include "engine/ops/math/dtype_rows.h"

namespace braid {
namespace {

using namespace binary;

template <class Op, class T>
struct Apply {
  __device__ T operator()(T a, T b) const { return Op::apply(a, b); }
};

template <class Op, class T>
PreparedKernel prepare(const PrepareContext& c) {
  return cuda::prepare_broadcast2<T, T>(c, c.inputs[0].shape, c.inputs[1].shape, Apply<Op, T>{});
}

/// Op divides by b.
template <class Op, class T>
__global__ void divide_kernel(const T* a, const T* b, T* y, std::int64_t n,
                              const __grid_constant__ cuda::DeviceBroadcast plan, bool broadcasts,
                              StepStatus* status, int op) {
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) {
    std::int64_t at[2] = {i, i};
    if (broadcasts) plan.locate(i, at);
    const T divisor = b[at[1]];
    if (divisor == 0) cuda::report(status, op, StatusCode::NotFinite, i, 0);
    y[i] = divisor == 0 ? T(0) : Op::apply(a[at[0]], divisor);
  }
}

template <class Op, class T>
PreparedKernel prepare_division(const PrepareContext& c) {
  const Shape &a = c.inputs[0].shape, &b = c.inputs[1].shape, &out = c.outputs[0].shape;
  const std::int64_t n = out.elements();
  const bool broadcasts = a.elements() != n || b.elements() != n;
  cuda::DeviceBroadcast plan;
  if (broadcasts && !plan.from(BroadcastPlan({&a, &b}, out))) c.fail("broadcasts over too many axes");
  PreparedKernel kernel;
  kernel.run = [=](const KernelArgs& args) {
    if (n != 0)
      cuda::launch(divide_kernel<Op, T>, cuda::blocks_for(n), cuda::kThreads, 0, args.stream, args.in<T>(0),
                   args.in<T>(1), args.out<T>(0), n, plan, broadcasts, args.status, args.op);
  };
  return kernel;
}

using Row = cuda::DtypeRow;

template <class Op>
constexpr Row floats(const char* name) {
  return {name, prepare<Op, float>, prepare<Op, double>};
}
template <class Op>
constexpr Row numbers(const char* name) {
  return {name, prepare<Op, float>, prepare<Op, double>, prepare<Op, std::int32_t>,
          prepare<Op, std::int64_t>};
}
template <class Op>
constexpr Row integers(const char* name) {
  return {name, nullptr, nullptr, prepare<Op, std::int32_t>, prepare<Op, std::int64_t>};
}
template <class Op>
constexpr Row divisions(const char* name) {
  return {name, prepare<Op, float>, prepare<Op, double>, prepare_division<Op, std::int32_t>,
          prepare_division<Op, std::int64_t>};
}

constexpr Row kRows[] = {
    numbers<Add>("Add"),
    numbers<Add>("AddV2"),
    numbers<Sub>("Sub"),
    numbers<Mul>("Mul"),
    divisions<Div>("Div"),
    floats<Div>("RealDiv"),
    divisions<FloorDiv>("FloorDiv"),
    divisions<FloorMod>("FloorMod"),
    numbers<Maximum>("Maximum"),
    numbers<Minimum>("Minimum"),
    floats<Pow>("Pow"),
    numbers<SquaredDifference>("SquaredDifference"),
    floats<DivNoNan>("DivNoNan"),
    floats<MulNoNan>("MulNoNan"),
    divisions<TruncateDiv>("TruncateDiv"),
    divisions<TruncateMod>("TruncateMod"),
    divisions<TruncateMod>("Mod"),
    floats<Xdivy>("Xdivy"),
    floats<Xlogy>("Xlogy"),
    floats<Xlog1py>("Xlog1py"),
    floats<Atan2>("Atan2"),
    integers<BitwiseAnd>("BitwiseAnd"),
    integers<BitwiseOr>("BitwiseOr"),
    integers<BitwiseXor>("BitwiseXor"),
    integers<LeftShift>("LeftShift"),
    integers<RightShift>("RightShift"),
};

}  // namespace

void register_binary_cuda(OpRegistry& registry) { cuda::register_rows(registry, kRows); }

}  // namespace braid
