// A file that is read at any place, wherever it lies: on a disk, or in a store (remote_files.h) where its
// name begins with a scheme, "s3://bucket/key". Thread rule: any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace braid {

class DataFile {
 public:
  virtual ~DataFile() = default;
  virtual std::uint64_t size() const = 0;
  /// Reads exactly out.size() bytes. Throws: DataLoss (the file ends before), Unavailable.
  virtual void read_at(std::uint64_t offset, std::span<std::byte> out) const = 0;
  virtual const std::filesystem::path& path() const = 0;
  /// It will be read from front to back.
  virtual void advise_sequential() const {}
};

/// Throws: InvalidArgument (missing, a directory, no permission), Unavailable (a store that does not answer).
std::shared_ptr<DataFile> open_data_file(const std::filesystem::path& file);

/// What tells that a file is another one than it was: of stores the time is that of the last change, too.
struct FileStamp {
  std::uint64_t size = 0;
  std::int64_t changed_ns = 0;
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};
/// Throws: as open_data_file().
FileStamp stamp_of(const std::filesystem::path& file);

/// "s3" of "s3://bucket/key"; empty for a path.
std::string_view scheme_of(std::string_view name);

}  // namespace braid
