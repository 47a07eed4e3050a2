// What a kind of store does for remote_files.h: one attempt at a time, which says by its error whether
// another one may help (Unavailable) or not. Private to engine/input. Thread rule: any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/input/files/data_file.h"

namespace braid {

class StoreFile {
 public:
  virtual ~StoreFile() = default;
  virtual FileStamp stamp() const = 0;
  /// Reads exactly out.size() bytes, which the file has. Throws: Unavailable (try again), DataLoss.
  virtual void read_at(std::uint64_t offset, std::span<std::byte> out) = 0;
};

struct StoreEntry {
  std::string name;  // with its scheme
  bool is_file = true;
};

class Store {
 public:
  virtual ~Store() = default;
  /// Throws: InvalidArgument (no such file, no permission), Unavailable (try again).
  virtual std::unique_ptr<StoreFile> open(const std::string& name) = 0;
  /// What lies in a directory; nothing where it is none.
  virtual std::vector<StoreEntry> list(const std::string& directory) = 0;
};

/// http and https.
Store& http_store();
/// s3, gs, hdfs. Throws: InvalidArgument where the build has no Arrow.
Store& arrow_store();

/// How long a read, or an opening, may take with all its attempts.
std::chrono::milliseconds io_deadline();

}  // namespace braid
