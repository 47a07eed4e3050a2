// Elementwise ops of two inputs that broadcast: from a formula `Op::apply(T a, T b)` to vector loops for each
// type, and from those to a prepared kernel. Included by the files with the tables (binary.cc, compare.cc).
#pragma once

#include <cstdint>
#include <string>

#include "engine/fusion/rules.h"
#include "engine/ops/common/broadcast.h"
#include "engine/ops/common/by_dtype.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"

namespace braid {

/// `rows` runs of n elements; y's are contiguous. The inner strides are 1 or 0.
struct BinaryTile {
  const void* a;
  const void* b;
  void* y;
  std::int64_t rows, n, a_row, a_inner, b_row, b_inner;
};
using BinaryLoop = void (*)(const BinaryTile&);

template <class Op, class T>
BRAID_VECTOR_CLONES void binary_loop(const BinaryTile& t) {
  using R = decltype(Op::apply(T(), T()));
  const T* a = static_cast<const T*>(t.a);
  const T* b = static_cast<const T*>(t.b);
  R* y = static_cast<R*>(t.y);
  const std::int64_t n = t.n, b_inner = t.b_inner;
  for (std::int64_t r = 0; r < t.rows; ++r, a += t.a_row, b += t.b_row, y += n) {
    if (t.a_inner != 0 && b_inner != 0) {
#pragma GCC ivdep  // y is a, or b, or overlaps neither; here and below
      for (std::int64_t i = 0; i < n; ++i) y[i] = Op::apply(a[i], b[i]);
    } else if (t.a_inner != 0) {
      const T scalar = *b;
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) y[i] = Op::apply(a[i], scalar);
    } else {
      const T scalar = *a;
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) y[i] = Op::apply(scalar, b[b_inner * i]);
    }
  }
}

/// An op's loop for each type.
using BinaryLoops = ByDtype<BinaryLoop>;

template <class Op>
constexpr BinaryLoops binary_floats() {
  return {.f32 = binary_loop<Op, float>, .f64 = binary_loop<Op, double>};
}
template <class Op>
constexpr BinaryLoops binary_integers() {
  return {.i32 = binary_loop<Op, std::int32_t>, .i64 = binary_loop<Op, std::int64_t>};
}
template <class Op>
constexpr BinaryLoops binary_numbers() {
  return {.f32 = binary_loop<Op, float>,
          .f64 = binary_loop<Op, double>,
          .i32 = binary_loop<Op, std::int32_t>,
          .i64 = binary_loop<Op, std::int64_t>};
}
template <class Op>
constexpr BinaryLoops binary_numbers_and_bool() {
  BinaryLoops loops = binary_numbers<Op>();
  loops.boolean = binary_loop<Op, bool>;
  return loops;
}
template <class Op>
constexpr BinaryLoops binary_bools() {
  return {.boolean = binary_loop<Op, bool>};
}

/// A kernel of inputs 0 and 1; `a` and `b` are the shapes under which they broadcast to output 0.
PreparedKernel prepare_binary(const PrepareContext& c, const BinaryLoops& loops, const Shape& a,
                              const Shape& b);
inline PreparedKernel prepare_binary(const PrepareContext& c, const BinaryLoops& loops) {
  return prepare_binary(c, loops, c.inputs[0].shape, c.inputs[1].shape);
}

/// A loop over operands one after the other.
inline fusion::ElementLoop fused_binary_loop(const BinaryLoops& loops, std::span<const DType> operands) {
  const BinaryLoop loop =
      operands.size() == 2 && operands[0] == operands[1] ? loops.of(operands[0]) : nullptr;
  if (!loop) return {};
  return [loop](const void* const* in, void* y, std::int64_t n) {
    loop({in[0], in[1], y, 1, n, n, 1, n, 1});
  };
}

}  // namespace braid
