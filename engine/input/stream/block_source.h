// Rows of files that are read a block at a time: what streams whose data are larger than memory are made of.
// A block is some neighbouring records of one file; its rows are known before it is read. tests/engine/input/
// block_source_test.cc is the conformance suite of all implementations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/input/files/file_reads.h"
#include "engine/input/schema/table.h"

namespace braid {

struct DataBlock {
  std::size_t file = 0;  // its number among the source's
  std::int64_t rows = 0;
  std::uint64_t bytes = 0;  // of the file, about
};

/// Rows [first, first + rows) of a block.
struct BlockPart {
  std::size_t block = 0;
  std::int64_t first = 0, rows = 0;
};

/// Thread rule: any number of threads.
class BlockSource {
 public:
  virtual ~BlockSource() = default;

  /// In the order of the files, and of the rows in them.
  virtual const std::vector<DataBlock>& blocks() const = 0;
  /// The columns that read() gives, without rows.
  virtual std::shared_ptr<const Table> columns() const = 0;
  /// The rows of these parts, one behind the other: as many as they say, whatever the files hold meanwhile.
  /// A bad record, of those that may be skipped, is its nearest good neighbour of the same call.
  /// Throws: DataLoss (a file that was cut or changed since it was indexed, a bad record too many: file and
  /// place), Unavailable (the disk, a store).
  virtual std::shared_ptr<const Table> read(std::span<const BlockPart> parts) = 0;
  /// "'clicks.csv' bytes 0 to 1048576".
  virtual std::string describe(std::size_t block) const = 0;
  /// Of what the blocks are cut from: other data, or other cuts, have another one.
  virtual std::uint64_t fingerprint() const = 0;
  /// What its files were read at so far; no bytes where that is not counted.
  virtual FileReadTotals reads() const { return {}; }
};

/// Of all blocks.
std::int64_t rows_of(const BlockSource& source);

}  // namespace braid
