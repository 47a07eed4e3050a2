// CUDA kernels of the elementwise ops of two inputs: the formulas of common/binary_formulas.h. Ops that
// refuse some integers (division by zero, negative powers) stay on the CPU for integers, where they can.
#include "engine/ops/common/binary_formulas.h"
#include "engine/ops/common/cuda/elementwise.cuh"

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

using Prepare = PreparedKernel (*)(const PrepareContext&);

struct Row {
  const char* name;
  Prepare f32 = nullptr, f64 = nullptr, i32 = nullptr, i64 = nullptr;

  Prepare of(DType dtype) const {
    switch (dtype) {
      case DType::Float32:
        return f32;
      case DType::Float64:
        return f64;
      case DType::Int32:
        return i32;
      case DType::Int64:
        return i64;
      default:
        return nullptr;
    }
  }
};
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

constexpr Row kRows[] = {
    numbers<Add>("Add"),
    numbers<Add>("AddV2"),
    numbers<Sub>("Sub"),
    numbers<Mul>("Mul"),
    floats<Div>("Div"),
    floats<Div>("RealDiv"),
    floats<FloorDiv>("FloorDiv"),
    floats<FloorMod>("FloorMod"),
    numbers<Maximum>("Maximum"),
    numbers<Minimum>("Minimum"),
    floats<Pow>("Pow"),
    numbers<SquaredDifference>("SquaredDifference"),
    floats<DivNoNan>("DivNoNan"),
    floats<MulNoNan>("MulNoNan"),
    floats<TruncateMod>("TruncateMod"),
    floats<TruncateMod>("Mod"),
    floats<Xdivy>("Xdivy"),
    floats<Xlogy>("Xlogy"),
    floats<Xlog1py>("Xlog1py"),
    floats<Atan2>("Atan2"),
    integers<BitwiseAnd>("BitwiseAnd"),
    integers<BitwiseOr>("BitwiseOr"),
    integers<BitwiseXor>("BitwiseXor"),
};

}  // namespace

void register_binary_cuda(OpRegistry& registry) {
  for (const Row& row : kRows)
    registry.add_cuda(
        row.name, [&row](const PrepareContext& c) { return row.of(c.inputs[0].dtype)(c); },
        [&row](const Node&, std::span<const OutputInfo> inputs) {
          return row.of(inputs[0].dtype) != nullptr;
        });
}

}  // namespace braid
