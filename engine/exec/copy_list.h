// The copies of a step's inputs to one block of device memory. Neighbours there that are neighbours of one
// block on the host too are one copy. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ir/tensor.h"

namespace braid {

struct MemoryCopy {
  void* to = nullptr;
  const void* from = nullptr;
  std::uint64_t bytes = 0;
};

class CopyList {
 public:
  /// `slack`: bytes between neighbours that may be copied with them.
  explicit CopyList(std::uint64_t slack) : slack_(slack) {}

  void clear();
  /// Of memory that is no tensor's. Nothing where there are no bytes.
  void add(const MemoryCopy& copy);
  /// Of a tensor's values, which lie until the copies are done.
  void add(void* to, const Tensor& from);
  const std::vector<MemoryCopy>& copies() const { return copies_; }

 private:
  bool continues(const Tensor& from, const MemoryCopy& next) const;

  std::uint64_t slack_;
  std::vector<MemoryCopy> copies_;
  const Tensor* last_ = nullptr;  // whose copy is the last one
};

}  // namespace braid
