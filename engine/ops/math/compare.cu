// CUDA kernels of comparisons and logical ops: the formulas of compare_formulas.h.
#include "engine/ops/common/cuda/elementwise.cuh"
#include "engine/ops/math/compare_formulas.h"
#include "engine/ops/math/dtype_rows.h"

namespace braid {
namespace {

using namespace compare;

template <class Op, class T>
struct Apply {
  __device__ bool operator()(T a, T b) const { return Op::apply(a, b); }
};

template <class Op, class T>
PreparedKernel prepare(const PrepareContext& c) {
  return cuda::prepare_broadcast2<T, bool>(c, c.inputs[0].shape, c.inputs[1].shape, Apply<Op, T>{});
}

using Row = cuda::DtypeRow;

template <class Op>
constexpr Row numbers(const char* name) {
  return {name, prepare<Op, float>, prepare<Op, double>, prepare<Op, std::int32_t>,
          prepare<Op, std::int64_t>};
}
template <class Op>
constexpr Row numbers_and_bool(const char* name) {
  return {name,
          prepare<Op, float>,
          prepare<Op, double>,
          prepare<Op, std::int32_t>,
          prepare<Op, std::int64_t>,
          prepare<Op, bool>};
}
template <class Op>
constexpr Row bools(const char* name) {
  return {name, nullptr, nullptr, nullptr, nullptr, prepare<Op, bool>};
}

constexpr Row kRows[] = {
    numbers_and_bool<Equal>("Equal"),
    numbers_and_bool<NotEqual>("NotEqual"),
    numbers<Less>("Less"),
    numbers<LessEqual>("LessEqual"),
    numbers<Greater>("Greater"),
    numbers<GreaterEqual>("GreaterEqual"),
    bools<LogicalAnd>("LogicalAnd"),
    bools<LogicalOr>("LogicalOr"),
};

}  // namespace

void register_compare_cuda(OpRegistry& registry) { cuda::register_rows(registry, kRows); }

}  // namespace braid
