// Arithmetic of uint64, which no kernel has, in int64: equal bits where addition and multiplication are
// concerned, and orders, quotients and shifts made of those. Thread rule: as builder.h.
#pragma once

#include "engine/import/onnx/builder.h"

namespace braid::onnx {

/// TensorFlow's op of two inputs, of any type.
Val binary_any(const char* op, Val a, Val b);

/// a << b or a >> b of integers of any width; bits that leave are lost, a sign stays. A count that is
/// negative or not below the width shifts everything out.
Val shift(Val a, Val b, bool left);

}  // namespace braid::onnx
