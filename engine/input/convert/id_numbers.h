// Values of a column as numbers in the order in which they first appear, from 2 on, as the reference of
// MLPerf's DLRM-v2 numbers Criteo's categories; then modulo the rows of a table. Out of core: where the
// different values do not fit into the memory that is given, they are taken in parts, by passes over the
// files. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

namespace braid {

inline constexpr std::uint32_t kFirstNumber = 2;

struct NumberColumnOptions {
  std::vector<std::filesystem::path> values;  // uint32 each, read in this order
  std::vector<std::filesystem::path> ids;     // int32, as many: written
  std::filesystem::path scratch;              // what files in between begin with, in parts
  std::int64_t rows = 1;                      // ids are numbers modulo this
  std::uint64_t memory_bytes = std::uint64_t{4} << 30;
};

struct NumberedColumn {
  std::uint64_t distinct = 0;
  int parts = 1;  // that the values were taken in
};

/// Throws: Unavailable (disk), InvalidArgument (memory for less than some thousand values).
NumberedColumn number_column(const NumberColumnOptions& options);

/// Numbers by values: open addressing, eight bytes a slot. No slot has the number 0.
class NumberTable {
 public:
  explicit NumberTable(std::uint64_t memory_bytes) : memory_bytes_(memory_bytes), slots_(kLeast) {}

  /// The number of a value that is there, else `next`, which it gets. Nothing: there is no memory for it.
  std::optional<std::uint32_t> number_of(std::uint32_t value, std::uint32_t next);
  std::uint64_t size() const { return size_; }
  void clear();

 private:
  static constexpr std::size_t kLeast = 4096;
  struct Slot {
    std::uint32_t value = 0, number = 0;
  };
  Slot& slot_of(std::uint32_t value);
  bool grow();

  const std::uint64_t memory_bytes_;
  std::vector<Slot> slots_;
  std::uint64_t size_ = 0;
};

}  // namespace braid
