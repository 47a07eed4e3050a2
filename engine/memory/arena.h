// The memory of one instance's temporaries: one block, aligned, whose addresses never change.
// Thread rule: owner's; the bytes belong to whom the program's order gives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace braid {

class Arena {
 public:
  /// Throws: OutOfMemory with the size.
  explicit Arena(std::uint64_t bytes);

  std::byte* at(std::uint64_t offset) { return memory_.get() + offset; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::uint64_t bytes_;
  std::unique_ptr<std::byte, Free> memory_;
};

}  // namespace braid
