// Blocks of memory for gradients and rows in transit, kept for reuse: a fresh 4 MiB block costs more in page
// faults than its transfer. Sizes are rounded up to powers of two; what is given back beyond `keep_bytes` is
// freed. Thread rule: safe from any thread; a block may be given back after the pool is gone.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace braid::ps {

class BufferPool {
 public:
  explicit BufferPool(std::size_t keep_bytes = std::size_t{256} << 20);

  /// At least `bytes` bytes, aligned to 64, uninitialised; given back when the last reference goes.
  std::shared_ptr<std::byte> take(std::size_t bytes);

 private:
  struct Shelves;
  std::shared_ptr<Shelves> shelves_;
};

}  // namespace braid::ps
