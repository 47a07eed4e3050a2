// CUDA kernels of the elementwise ops of one input: the formulas of unary_formulas.h.
#include "engine/ops/common/cuda/elementwise.cuh"
#include "engine/ops/math/dtype_rows.h"
#include "engine/ops/math/unary_formulas.h"

namespace braid {
namespace {

using namespace unary;

template <class Op, class T>
struct Apply {
  T alpha;
  __device__ auto operator()(T x) const { return Op::apply(x, alpha); }
};

template <class Op, class T>
PreparedKernel prepare(const PrepareContext& c) {
  using R = decltype(Op::apply(T(), T()));
  const std::int64_t n = c.outputs[0].shape.elements();
  const Apply<Op, T> f{static_cast<T>(c.attr<double>("alpha", 0.2))};  // LeakyRelu's default, as TensorFlow's
  PreparedKernel kernel;
  kernel.run = [n, f](const KernelArgs& a) { cuda::map<1, T, R>(a.stream, {a.in<T>(0)}, a.out<R>(0), n, f); };
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

constexpr Row kRows[] = {
    numbers<Neg>("Neg"),
    numbers<Abs>("Abs"),
    numbers<Sign>("Sign"),
    floats<Exp>("Exp"),
    floats<Expm1>("Expm1"),
    floats<Log>("Log"),
    floats<Log1p>("Log1p"),
    floats<Sqrt>("Sqrt"),
    floats<Rsqrt>("Rsqrt"),
    numbers<Square>("Square"),
    floats<Reciprocal>("Reciprocal"),
    floats<Reciprocal>("Inv"),
    floats<Sin>("Sin"),
    floats<Cos>("Cos"),
    floats<Tan>("Tan"),
    floats<Asin>("Asin"),
    floats<Acos>("Acos"),
    floats<Atan>("Atan"),
    floats<Sinh>("Sinh"),
    floats<Cosh>("Cosh"),
    floats<Asinh>("Asinh"),
    floats<Acosh>("Acosh"),
    floats<Atanh>("Atanh"),
    floats<Tanh>("Tanh"),
    floats<Sigmoid>("Sigmoid"),
    numbers<Relu>("Relu"),
    numbers<Relu6>("Relu6"),
    floats<Elu>("Elu"),
    floats<Selu>("Selu"),
    floats<LeakyRelu>("LeakyRelu"),
    floats<Softplus>("Softplus"),
    floats<Softsign>("Softsign"),
    floats<Erf>("Erf"),
    floats<Erfc>("Erfc"),
    floats<Lgamma>("Lgamma"),
    floats<Floor>("Floor"),
    floats<Ceil>("Ceil"),
    numbers<Round>("Round"),
    floats<Rint>("Rint"),
    floats<IsNan>("IsNan"),
    floats<IsInf>("IsInf"),
    floats<IsFinite>("IsFinite"),
    {"LogicalNot", nullptr, nullptr, nullptr, nullptr, prepare<LogicalNot, bool>},
    integers<Invert>("Invert"),
};

}  // namespace

void register_unary_cuda(OpRegistry& registry) { cuda::register_rows(registry, kRows); }

}  // namespace braid
