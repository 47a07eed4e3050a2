#include "engine/staging/block_pool.h"

#include <algorithm>
#include <cstring>

namespace braid {
BlockPool::BlockPool(Allocate allocate) : allocate_(allocate ? std::move(allocate) : allocate_aligned) {}

std::shared_ptr<BlockPool> BlockPool::make(Allocate allocate) {
  return std::shared_ptr<BlockPool>(new BlockPool(std::move(allocate)));
}

std::shared_ptr<std::byte[]> BlockPool::take(std::size_t bytes) {
  Block block;
  {
    std::lock_guard lock(mu_);
    // The smallest that is large enough; batches of changing sizes would else keep large blocks for small
    // ones.
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it)
      if (it->bytes >= bytes && (best == free_.end() || it->bytes < best->bytes)) best = it;
    if (best != free_.end()) {
      block = std::move(*best);
      free_.erase(best);
    } else {
      // What is too small now will be too small again.
      if (!free_.empty()) free_.pop_back();
      ++made_;
    }
  }
  if (!block.memory) {
    block.bytes = aligned(std::max(bytes, kAlignment));
    block.memory = allocate_(block.bytes);
  }
  std::byte* raw = block.memory.get();
  return {raw, [pool = shared_from_this(), block = std::move(block)](std::byte*) mutable {
            pool->give_back(std::move(block));
          }};
}

void BlockPool::give_back(Block block) {
  std::lock_guard lock(mu_);
  free_.push_back(std::move(block));
}

std::size_t BlockPool::blocks_made() const {
  std::lock_guard lock(mu_);
  return made_;
}

Batch pack_batch(const std::vector<Tensor>& tensors, BlockPool& pool) {
  std::size_t bytes = 0;
  for (const Tensor& tensor : tensors)
    if (tensor.domain() == Domain::Host) bytes += BlockPool::aligned(tensor.bytes());
  const auto block = pool.take(bytes);
  Batch batch;
  batch.block = block;
  batch.block_bytes = bytes;
  std::size_t offset = 0;
  for (const Tensor& tensor : tensors) {
    if (!tensor.defined() || tensor.domain() == Domain::Device) {
      batch.tensors.push_back(tensor);
      continue;
    }
    std::byte* to = block.get() + offset;
    std::memcpy(to, tensor.raw(), tensor.bytes());
    batch.tensors.emplace_back(tensor.dtype(), tensor.shape(), std::shared_ptr<std::byte[]>(block, to));
    offset += BlockPool::aligned(tensor.bytes());
  }
  return batch;
}

}  // namespace braid
