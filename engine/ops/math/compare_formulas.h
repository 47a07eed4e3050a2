// The formulas of comparisons and logical ops: `Op::apply(a, b)`. One definition for the CPU (compare.cc) and
// CUDA (compare.cu).
#pragma once

#include "engine/ops/common/kernel_util.h"

namespace braid::compare {

#define BRAID_COMPARE(name, expression)        \
  struct name {                                \
    template <class T>                         \
    BRAID_INLINE static bool apply(T a, T b) { \
      return expression;                       \
    }                                          \
  };

BRAID_COMPARE(Equal, a == b)
BRAID_COMPARE(NotEqual, a != b)
BRAID_COMPARE(Less, a < b)
BRAID_COMPARE(LessEqual, a <= b)
BRAID_COMPARE(Greater, a > b)
BRAID_COMPARE(GreaterEqual, a >= b)
BRAID_COMPARE(LogicalAnd, (a & b) != 0)
BRAID_COMPARE(LogicalOr, (a | b) != 0)
#undef BRAID_COMPARE

}  // namespace braid::compare
