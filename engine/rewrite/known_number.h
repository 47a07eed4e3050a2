// The number that a known value of floats has everywhere. Thread rule: pure.
#pragma once

#include <algorithm>
#include <optional>
#include <span>

#include "engine/ir/graph.h"

namespace braid {

/// Nothing where it is not known, has no elements or several numbers, or is not of floats.
inline std::optional<double> known_number(const Graph& graph, ValueRef value) {
  const Tensor* const known = graph.known_value(value);
  if (!known || known->elements() < 1) return std::nullopt;
  const auto uniform = [&]<class T>() -> std::optional<double> {
    const std::span<const T> all = known->data<T>();
    if (std::any_of(all.begin(), all.end(), [&](T x) { return x != all[0]; })) return std::nullopt;
    return static_cast<double>(all[0]);
  };
  if (known->dtype() == DType::Float32) return uniform.template operator()<float>();
  if (known->dtype() == DType::Float64) return uniform.template operator()<double>();
  return std::nullopt;
}

}  // namespace braid
