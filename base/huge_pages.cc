#include "base/huge_pages.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

namespace braid {

void* allocate_huge_pages(std::size_t bytes) noexcept {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  if (bytes > SIZE_MAX - kHugePage) return nullptr;
  const std::size_t size = (bytes / kHugePage + (bytes % kHugePage != 0)) * kHugePage;
  void* const memory = std::aligned_alloc(kHugePage, size == 0 ? kHugePage : size);
  if (memory) madvise(memory, size, MADV_HUGEPAGE);
  return memory;
}

}  // namespace braid
