#include "engine/device/pinned_blocks.h"

#include <mutex>

namespace braid {
namespace {

std::uintptr_t address_of(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

}  // namespace

void PinnedBlocks::add(const void* block, std::uint64_t bytes) {
  std::unique_lock lock(mu_);
  blocks_[address_of(block)] = bytes;
}

void PinnedBlocks::remove(const void* block) {
  std::unique_lock lock(mu_);
  blocks_.erase(address_of(block));
}

bool PinnedBlocks::contains(const void* memory, std::uint64_t bytes) const {
  const std::uintptr_t first = address_of(memory);
  std::shared_lock lock(mu_);
  auto after = blocks_.upper_bound(first);
  if (after == blocks_.begin()) return false;
  const auto& [begin, size] = *--after;
  return first - begin <= size && bytes <= size - (first - begin);
}

}  // namespace braid
