// Records of files one after another, with the keys that TensorFlow's reader ops give them. Thread rule: one
// object, one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace braid::cli {

struct KeyedRecord {
  std::string key, value;
};

class RecordReader {
 public:
  virtual ~RecordReader() = default;
  /// Nothing at the end. Throws: DataLoss.
  virtual std::optional<KeyedRecord> next() = 0;
};

/// For the op TextLineReader ("file:line"), TFRecordReader ("file:byte"), WholeFileReader ("file") or
/// IdentityReader (the name itself); null for another. Throws: InvalidArgument (cannot open: path, reason).
std::unique_ptr<RecordReader> open_records(std::string_view op, const std::string& file,
                                           std::int64_t skip_header_lines);

}  // namespace braid::cli
