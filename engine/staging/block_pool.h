// Blocks of memory for batches, used again when their batch has been dropped, and packing: all tensors of a
// batch side by side in one block, so that it moves to a device as one copy. The memory is the host's, or
// what `allocate` gives (page-locked memory). Thread rule: any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/staging/batch.h"

namespace braid {

class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  using Allocate = std::function<std::shared_ptr<std::byte[]>(std::size_t bytes)>;
  /// Of each tensor of a batch in its block: that of a step's inputs on a device
  /// (engine/exec/bound_program.h), so that a batch whose tensors have its order is one copy.
  static constexpr std::size_t kAlignment = 256;
  static constexpr std::size_t aligned(std::size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  static std::shared_ptr<BlockPool> make(Allocate allocate = {});
  BlockPool(const BlockPool&) = delete;

  /// At least `bytes`, aligned as `allocate` does it; comes back to the pool with its last reference.
  std::shared_ptr<std::byte[]> take(std::size_t bytes);
  std::size_t blocks_made() const;

 private:
  struct Block {
    std::shared_ptr<std::byte[]> memory;
    std::size_t bytes = 0;
  };
  explicit BlockPool(Allocate allocate);
  void give_back(Block block);

  const Allocate allocate_;
  mutable std::mutex mu_;
  std::vector<Block> free_;  // guarded by mu_
  std::size_t made_ = 0;     // guarded by mu_
};

/// A batch whose tensors are copies of these, in one block of the pool, each at a multiple of kAlignment.
/// Those on a device stay what they are.
Batch pack_batch(const std::vector<Tensor>& tensors, BlockPool& pool);

}  // namespace braid
