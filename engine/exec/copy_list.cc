#include "engine/exec/copy_list.h"

namespace braid {
namespace {

std::uint64_t distance(const void* from, const void* to) {
  return static_cast<std::uint64_t>(static_cast<const std::byte*>(to) - static_cast<const std::byte*>(from));
}

/// Their memory, and so what is between them, goes when both are gone.
bool share_a_block(const Tensor& a, const Tensor& b) {
  return a.domain() == b.domain() && !a.memory().owner_before(b.memory()) &&
         !b.memory().owner_before(a.memory());
}

}  // namespace

void CopyList::clear() {
  copies_.clear();
  last_ = nullptr;
}

void CopyList::add(const MemoryCopy& copy) {
  if (copy.bytes == 0) return;
  copies_.push_back(copy);
  last_ = nullptr;
}

void CopyList::add(void* to, const Tensor& from) {
  const MemoryCopy copy{to, from.raw(), from.bytes()};
  if (continues(from, copy))
    copies_.back().bytes = distance(copies_.back().to, copy.to) + copy.bytes;
  else
    copies_.push_back(copy);
  last_ = &from;
}

bool CopyList::continues(const Tensor& from, const MemoryCopy& next) const {
  if (!last_ || !share_a_block(*last_, from)) return false;
  // Both ends lie behind those of the last copy as they would be if the two were one.
  const MemoryCopy& copy = copies_.back();
  return next.from > copy.from && distance(copy.from, next.from) == distance(copy.to, next.to) &&
         distance(copy.to, next.to) - copy.bytes < slack_;
}

}  // namespace braid
