// The formulas of the helper ops of elementwise gradients: `Op::apply(first, second, alpha)`. One definition
// for the CPU (unary_grad.cc) and CUDA (unary_grad.cu).
#pragma once

#include <cmath>

#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/vector_math.h"

namespace braid::unary_grad {

#define BRAID_UNARY_GRAD(name, first, second, expression)     \
  struct name {                                               \
    template <class T>                                        \
    BRAID_INLINE static T apply(T first, T second, T alpha) { \
      static_cast<void>(alpha);                               \
      return expression;                                      \
    }                                                         \
  };

// No gradient stays none where the formula would multiply it by infinity, as in TensorFlow.
BRAID_UNARY_GRAD(SqrtGrad, y, dy, dy == T(0) ? T(0) : T(0.5) * dy / y)
BRAID_UNARY_GRAD(RsqrtGrad, y, dy, dy == T(0) ? T(0) : T(-0.5) * dy * y * y * y)
BRAID_UNARY_GRAD(ReciprocalGrad, y, dy, dy == T(0) ? T(0) : -dy * y * y)
BRAID_UNARY_GRAD(TanhGrad, y, dy, dy*(T(1) - y * y))
BRAID_UNARY_GRAD(SigmoidGrad, y, dy, dy* y*(T(1) - y))
BRAID_UNARY_GRAD(ReluGrad, dy, x, x > T(0) ? dy : T(0))
BRAID_UNARY_GRAD(Relu6Grad, dy, x, x > T(0) && x < T(6) ? dy : T(0))
BRAID_UNARY_GRAD(EluGrad, dy, y, y < T(0) ? dy * (y + T(1)) : dy)
BRAID_UNARY_GRAD(SeluGrad, dy, y, dy*(y < T(0) ? y + T(1.7580993408473768599) : T(1.0507009873554804934)))
BRAID_UNARY_GRAD(LeakyReluGrad, dy, x, x > T(0) ? dy : alpha * dy)
BRAID_UNARY_GRAD(SoftplusGrad, dy, x, dy* vec::sigmoid(x))
BRAID_UNARY_GRAD(SoftsignGrad, dy, x, dy / ((T(1) + std::abs(x)) * (T(1) + std::abs(x))))
#undef BRAID_UNARY_GRAD

}  // namespace braid::unary_grad
