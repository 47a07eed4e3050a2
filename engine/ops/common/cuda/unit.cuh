// Unsigned integers of the size of an element, for kernels that move elements and do not look at them.
#pragma once

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

}  // namespace braid::cuda
