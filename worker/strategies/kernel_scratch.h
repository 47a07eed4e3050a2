// A kernel's scratch as arrays, one behind the other. Thread rule: made by prepare, read by runs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/ir/op.h"

namespace braid::worker {

class KernelScratch {
 public:
  /// Where an array of that many elements begins, in bytes.
  template <class T>
  std::size_t add(std::int64_t count) {
    const std::size_t at = bytes_;
    bytes_ += (static_cast<std::size_t>(count) * sizeof(T) + 63) / 64 * 64;
    return at;
  }
  std::size_t bytes() const { return bytes_; }

  template <class T>
  static T* array(const KernelArgs& args, std::size_t at) {
    return reinterpret_cast<T*>(static_cast<char*>(args.scratch) + at);
  }

 private:
  std::size_t bytes_ = 0;
};

}  // namespace braid::worker
