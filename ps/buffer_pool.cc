#include "ps/buffer_pool.h"

#include <array>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

namespace braid::ps {

struct BufferPool::Shelves {
  static constexpr std::size_t kSmallest = 12;  // 4 KiB

  explicit Shelves(std::size_t keep) : keep_bytes(keep) {}
  ~Shelves() {
    for (auto& shelf : by_size)
      for (std::byte* block : shelf) std::free(block);
  }

  std::byte* take(unsigned size_bits) {
    {
      std::lock_guard lock(mutex);
      auto& shelf = by_size[size_bits];
      if (!shelf.empty()) {
        std::byte* block = shelf.back();
        shelf.pop_back();
        kept_bytes -= std::size_t{1} << size_bits;
        return block;
      }
    }
    auto* block = static_cast<std::byte*>(std::aligned_alloc(64, std::size_t{1} << size_bits));
    if (block == nullptr) throw std::bad_alloc();
    return block;
  }

  void give_back(std::byte* block, unsigned size_bits) {
    {
      std::lock_guard lock(mutex);
      if (kept_bytes + (std::size_t{1} << size_bits) <= keep_bytes) {
        kept_bytes += std::size_t{1} << size_bits;
        by_size[size_bits].push_back(block);
        return;
      }
    }
    std::free(block);
  }

  const std::size_t keep_bytes;
  std::mutex mutex;
  std::size_t kept_bytes = 0;                       // guarded by mutex
  std::array<std::vector<std::byte*>, 64> by_size;  // guarded by mutex
};

BufferPool::BufferPool(std::size_t keep_bytes) : shelves_(std::make_shared<Shelves>(keep_bytes)) {}

std::shared_ptr<std::byte> BufferPool::take(std::size_t bytes) {
  const auto size_bits = static_cast<unsigned>(std::max<std::size_t>(
      Shelves::kSmallest, static_cast<std::size_t>(std::bit_width(bytes > 0 ? bytes - 1 : 0))));
  return {shelves_->take(size_bits),
          [shelves = shelves_, size_bits](std::byte* block) { shelves->give_back(block, size_bits); }};
}

}  // namespace braid::ps
