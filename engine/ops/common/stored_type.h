// Variables of float16 and bfloat16 are computed with in float32, as everything of those types is
// (engine/import/widen.h), and each result is rounded where it is stored. Thread rule: pure functions.
#pragma once

#include <string_view>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/half.h"

namespace braid {

/// What a variable of that type is computed with in.
inline DType computed_type(DType stored) {
  return stored == DType::Float16 || stored == DType::BFloat16 ? DType::Float32 : stored;
}

/// Calls f.operator()<S, T>() for the type that is stored and the one that is computed with.
template <class F>
decltype(auto) with_stored_number(std::string_view who, DType stored, F&& f) {
  switch (stored) {
    case DType::Float16:
      return f.template operator()<Float16, float>();
    case DType::BFloat16:
      return f.template operator()<BFloat16, float>();
    default:
      return with_number(who, stored,
                         [&]<class T>() -> decltype(auto) { return f.template operator()<T, T>(); });
  }
}

}  // namespace braid
