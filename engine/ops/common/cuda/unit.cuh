// Unsigned integers of the size of an element, and units of rows, for kernels that move elements and do not
// look at them.
#pragma once

#include <vector_types.h>

#include <cstddef>
#include <cstdint>

namespace braid::cuda {

/// f.template operator()<U>() with a U of `bytes` bytes. REQUIRES: 1, 2, 4 or 8.
template <class F>
decltype(auto) with_element_of(std::size_t bytes, F&& f) {
  switch (bytes) {
    case 1:
      return f.template operator()<std::uint8_t>();
    case 2:
      return f.template operator()<std::uint16_t>();
    case 4:
      return f.template operator()<std::uint32_t>();
    default:
      return f.template operator()<std::uint64_t>();
  }
}

/// f.template operator()<Unit>() with the largest Unit of 16, 4 and 1 bytes that divides `alignment`:
/// addresses and the bytes of a row, joined by |.
template <class F>
void with_row_unit(std::uint64_t alignment, F&& f) {
  if (alignment % 16 == 0) return f.template operator()<uint4>();
  if (alignment % 4 == 0) return f.template operator()<std::uint32_t>();
  return f.template operator()<std::uint8_t>();
}

}  // namespace braid::cuda
