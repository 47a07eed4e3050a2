// Memory for what is large and read or written at random, where looking up small pages costs as much as the
// memory itself. Thread rule: any thread.
#pragma once

#include <cstddef>

namespace braid {

/// From so many bytes on it is worth whole pages of 2 MiB.
inline constexpr std::size_t kLargeBlockBytes = std::size_t{8} << 20;

/// So many bytes and what is left of the last huge page, on its border; what they hold is not said. Where the
/// system has no huge pages to give, small ones do. Null: there is no memory. To be given to std::free().
void* allocate_huge_pages(std::size_t bytes) noexcept;

}  // namespace braid
