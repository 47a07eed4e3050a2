// From a DType to a C++ type: `with_float(dtype, f)` calls `f.template operator()<T>()` for the T that the
// dtype names and returns its result. Each function covers a set of types; another type gives InvalidArgument
// with `who` in front, so shape rules that name the allowed types refuse first and kernels need no second
// text. CUDA sources include this, so it is without fmt, which nvcc does not take.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/error.h"

namespace braid {

[[noreturn]] inline void throw_no_kernel(std::string_view who, DType dtype) {
  throw InvalidArgument("[" + std::string(who) + "] no kernel for " + std::string(dtype_name(dtype)));
}

/// float32, float64.
template <class F>
decltype(auto) with_float(std::string_view who, DType dtype, F&& f) {
  switch (dtype) {
    case DType::Float32:
      return f.template operator()<float>();
    case DType::Float64:
      return f.template operator()<double>();
    default:
      throw_no_kernel(who, dtype);
  }
}

/// float32, float64, int32, int64.
template <class F>
decltype(auto) with_number(std::string_view who, DType dtype, F&& f) {
  switch (dtype) {
    case DType::Float32:
      return f.template operator()<float>();
    case DType::Float64:
      return f.template operator()<double>();
    case DType::Int32:
      return f.template operator()<std::int32_t>();
    case DType::Int64:
      return f.template operator()<std::int64_t>();
    default:
      throw_no_kernel(who, dtype);
  }
}

/// int32, int64: indices and labels.
template <class F>
decltype(auto) with_index(std::string_view who, DType dtype, F&& f) {
  switch (dtype) {
    case DType::Int32:
      return f.template operator()<std::int32_t>();
    case DType::Int64:
      return f.template operator()<std::int64_t>();
    default:
      throw_no_kernel(who, dtype);
  }
}

/// All numbers that tensors may hold, and bool.
template <class F>
decltype(auto) with_number_or_bool(std::string_view who, DType dtype, F&& f) {
  switch (dtype) {
    case DType::UInt8:
      return f.template operator()<std::uint8_t>();
    case DType::Int8:
      return f.template operator()<std::int8_t>();
    case DType::Int16:
      return f.template operator()<std::int16_t>();
    case DType::UInt16:
      return f.template operator()<std::uint16_t>();
    case DType::UInt32:
      return f.template operator()<std::uint32_t>();
    case DType::UInt64:
      return f.template operator()<std::uint64_t>();
    case DType::Bool:
      return f.template operator()<bool>();
    default:
      return with_number(who, dtype, static_cast<F&&>(f));
  }
}

}  // namespace braid
