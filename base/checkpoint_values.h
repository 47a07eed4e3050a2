// One checkpoint as named arrays, whichever number of servers wrote it: the pieces that they hold are put
// together. Rows of a sparse table are under "<table>@keys", "<table>@rows", "<table>/<slot>@rows", sorted by
// key; where they are all rows of a table whose shape the manifest knows, they are the whole table, and under
// its name. Thread rule: one object, one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/checkpoint.h"
#include "base/dtype.h"

namespace braid {

struct CheckpointValue {
  DType dtype = DType::Invalid;
  std::vector<std::int64_t> shape = {};
};

class CheckpointValues {
 public:
  /// Throws: DataLoss (damage, or a piece that is in no shard).
  explicit CheckpointValues(CheckpointInfo info);

  const CheckpointMeta& meta() const { return info_.meta; }
  const std::filesystem::path& directory() const { return info_.directory; }
  const std::map<std::string, CheckpointValue>& values() const { return values_; }
  /// The elements, row-major. Throws: DataLoss (damage), InvalidArgument (no such value).
  std::vector<std::byte> read(const std::string& name) const;

 private:
  /// An entry of a shard.
  struct Piece {
    std::size_t shard = 0;
    CheckpointEntry entry;
    std::int64_t offset = 0;  // in elements of a dense table
  };

  void add(std::size_t shard, const CheckpointEntry& entry);
  void settle(const std::string& name, std::vector<Piece>& pieces);
  void join_rows();
  void take_shape(const std::string& name, CheckpointValue& value) const;
  std::vector<std::byte> sorted_rows(const std::string& name, const std::vector<std::byte>& rows) const;

  CheckpointInfo info_;
  std::vector<std::unique_ptr<ShardReader>> readers_;
  std::map<std::string, std::vector<Piece>> pieces_;
  std::map<std::string, CheckpointValue> values_;
  std::map<std::string, std::string> joined_;  // whole tables and slots, by what their rows are stored as
};

}  // namespace braid
