// Which host memory is page-locked for a device, so that copies may read it where it lies.
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <shared_mutex>

namespace braid {

class PinnedBlocks {
 public:
  void add(const void* block, std::uint64_t bytes);
  void remove(const void* block);
  /// All of these bytes lie in one block.
  bool contains(const void* memory, std::uint64_t bytes) const;

 private:
  mutable std::shared_mutex mu_;
  std::map<std::uintptr_t, std::uint64_t> blocks_;  // guarded by mu_: bytes by address
};

}  // namespace braid
