// A block of zeroed memory for tables that are read at random: large ones lie on huge pages where the system
// has them (a walk of the page table costs as much as the miss it serves), and their pages cost nothing until
// they are touched. Thread rule: a value; the memory is whoever's who owns it.
#pragma once

#include <cstddef>
#include <memory>

namespace braid::ps {

class ZeroedBlock {
 public:
  ZeroedBlock() = default;
  /// Aligned to 64 bytes. Throws: std::bad_alloc.
  explicit ZeroedBlock(std::size_t bytes);

  std::byte* data() const { return data_.get(); }

 private:
  struct Free {
    std::size_t mapped;  // 0: from the heap
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> data_{nullptr, Free{0}};
};

}  // namespace braid::ps
