#include "ps/table/zeroed_block.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace braid::ps {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

ZeroedBlock::ZeroedBlock(std::size_t bytes) {
  if (bytes < kHugePage) {
    const std::size_t size = round_up(bytes == 0 ? 1 : bytes, 64);
    data_ = {static_cast<std::byte*>(std::aligned_alloc(64, size)), Free{0}};
    if (!data_) throw std::bad_alloc();
    std::memset(data_.get(), 0, size);
    return;
  }
  // One huge page more than needed, and the ends given back, so that the block begins on a border.
  const std::size_t size = round_up(bytes, kHugePage);
  void* mapped = mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* first = static_cast<std::byte*>(mapped);
  const std::size_t before =
      round_up(reinterpret_cast<std::uintptr_t>(first), kHugePage) - reinterpret_cast<std::uintptr_t>(first);
  if (before > 0) munmap(first, before);
  if (before < kHugePage) munmap(first + before + size, kHugePage - before);
  data_ = {first + before, Free{size}};
  madvise(data_.get(), size, MADV_HUGEPAGE);  // where there are none, small pages do
}

void ZeroedBlock::Free::operator()(std::byte* p) const {
  if (mapped == 0)
    std::free(p);
  else
    munmap(p, mapped);
}

}  // namespace braid::ps
