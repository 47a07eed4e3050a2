// Elements of a known tensor of any type, by index. Thread rule: pure function.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "engine/ir/tensor.h"

namespace braid {

/// The elements from[k] of `values`, and the scalar `fallback` where that is -1, under a shape of as many.
/// REQUIRES: both have one type.
inline Tensor picked_elements(const Tensor& values, const Tensor& fallback,
                              std::span<const std::int64_t> from, Shape shape) {
  if (values.dtype() == DType::String) {
    std::vector<std::string> texts;
    for (const std::int64_t i : from) texts.emplace_back(i < 0 ? fallback.string_at(0) : values.string_at(i));
    return Tensor::strings(std::move(shape), texts);
  }
  Tensor result(values.dtype(), std::move(shape));
  const std::size_t size = dtype_size(values.dtype());
  for (std::size_t k = 0; k < from.size(); ++k)
    std::memcpy(result.raw() + k * size,
                from[k] < 0 ? fallback.raw() : values.raw() + static_cast<std::size_t>(from[k]) * size, size);
  return result;
}

}  // namespace braid
