// The seam to the file system: whole files, directories, and a descriptor with positioned reads and writes.
// Every error names what was tried, the path, the offset where there is one, and the system's text. Thread
// rule: functions are safe from any thread; a File is one thread's, except read_at.
//
// Throws: InvalidArgument where the user named what cannot be read (missing, a directory, no permission);
// Unavailable for the rest of reading and for all of writing (disk full, read-only, I/O error); DataLoss
// where a file ends too soon.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace braid {

class File {
 public:
  static File open(const std::filesystem::path& path);
  /// Creates the file, or empties the one that exists.
  static File create(const std::filesystem::path& path);
  ~File();  // closes; errors of a close are reported by close()
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  /// Appends at the file's position, all of it.
  void write(std::span<const std::byte> data);
  /// Reads exactly out.size() bytes at `offset`.
  void read_at(std::uint64_t offset, std::span<std::byte> out) const;
  std::uint64_t size() const;
  /// Waits until what was written is on the disk.
  void sync();
  void close();
  /// Tells the system that the file will be read from front to back.
  void advise_sequential() const;
  const std::filesystem::path& path() const { return path_; }

 private:
  File(std::filesystem::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t written_ = 0;
};

std::string read_file(const std::filesystem::path& path);

/// A reader sees the old content or the new, never a part: a temporary file beside it, synced, then renamed
/// over it.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

void make_directories(const std::filesystem::path& path);
/// Replaces `to` if it is a file, or an empty directory when `from` is one.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);
/// Removes a file or a whole tree; what is not there is not an error.
void remove_tree(const std::filesystem::path& path);
/// Makes renames and new names in the directory survive a power failure.
void sync_directory(const std::filesystem::path& path);

/// What the directory holds, by name, sorted.
std::vector<std::filesystem::path> list_directory(const std::filesystem::path& path);
/// Paths that match a shell pattern (*, ?, [...]), sorted; none if nothing matches.
std::vector<std::filesystem::path> glob(const std::string& pattern);

}  // namespace braid
