// Elementwise ops of two inputs that broadcast: from a formula `Op::apply(T a, T b)` to vector loops for each
// type, and from those to a prepared kernel. Included by the files with the tables (binary.cc, compare.cc).
#pragma once

#include <cstdint>
#include <string>

#include "engine/ops/common/broadcast.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"

namespace braid {

/// One run: a and b are n elements each, or one that is used for all (its stride is 0).
using BinaryLoop = void (*)(const void* a, std::int64_t a_stride, const void* b, std::int64_t b_stride,
                            void* y, std::int64_t n);

template <class Op, class T>
BRAID_VECTOR_CLONES void binary_loop(const void* a_data, std::int64_t a_stride, const void* b_data,
                                     std::int64_t b_stride, void* y_data, std::int64_t n) {
  using R = decltype(Op::apply(T(), T()));
  const T* a = static_cast<const T*>(a_data);
  const T* b = static_cast<const T*>(b_data);
  R* y = static_cast<R*>(y_data);
  if (a_stride != 0 && b_stride != 0) {
#pragma GCC ivdep  // y is a, or b, or overlaps neither; here and below
    for (std::int64_t i = 0; i < n; ++i) y[i] = Op::apply(a[i], b[i]);
  } else if (a_stride != 0) {
    const T scalar = *b;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) y[i] = Op::apply(a[i], scalar);
  } else {
    const T scalar = *a;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) y[i] = Op::apply(scalar, b[b_stride * i]);
  }
}

/// The types of an op and a loop for each; null where it has none.
struct BinaryLoops {
  BinaryLoop f32 = nullptr, f64 = nullptr, i32 = nullptr, i64 = nullptr, boolean = nullptr;

  BinaryLoop of(DType dtype) const {
    switch (dtype) {
      case DType::Float32:
        return f32;
      case DType::Float64:
        return f64;
      case DType::Int32:
        return i32;
      case DType::Int64:
        return i64;
      case DType::Bool:
        return boolean;
      default:
        return nullptr;
    }
  }
};

template <class Op>
constexpr BinaryLoops binary_floats() {
  return {.f32 = binary_loop<Op, float>, .f64 = binary_loop<Op, double>};
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

}  // namespace braid
