// One function for each element type that an op of numbers has, for tables of such ops.
#pragma once

#include "base/dtype.h"

namespace braid {

/// `F` is a pointer to a function; null where there is none.
template <class F>
struct ByDtype {
  F f32 = nullptr, f64 = nullptr, i32 = nullptr, i64 = nullptr, boolean = nullptr;

  F of(DType dtype) const {
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

}  // namespace braid
