// How files of streams are read: through the page cache, or past it, several aligned reads at a time ahead of
// who uses the bytes. The bytes are the same. A store is read as data_file.h reads it, whatever is asked for;
// so are files where the kernel has no io_uring, and those of a file system without direct reads: the log
// says so once.
//
// Thread rule: FileReads from any number of threads; an ExtentReader is one thread's.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace braid {

/// Bytes [begin, end) of a file.
struct FileExtent {
  std::filesystem::path file;
  std::uint64_t begin = 0, end = 0;
};

/// Bytes of some parts of files, one behind the other.
class ExtentReader {
 public:
  virtual ~ExtentReader() = default;
  /// Reads these from now on, and nothing more of those before.
  virtual void begin(std::vector<FileExtent> extents) = 0;
  /// The next out.size() bytes. REQUIRES: there are so many. Throws: DataLoss (a file ends before: file and
  /// byte), Unavailable (the disk, a store), DeadlineExceeded; then nothing but begin() may follow.
  virtual void read(std::span<std::byte> out) = 0;
};

struct FileReadOptions {
  bool direct = false;
  // Of direct reads, for each thread that reads: `depth` buffers of `chunk_bytes`, a multiple of 4096.
  int depth = 8;
  std::size_t chunk_bytes = std::size_t{512} << 10;
  std::chrono::nanoseconds timeout = std::chrono::minutes(10);  // of one wait for the disk
};

struct FileReadTotals {
  std::uint64_t bytes = 0;         // that were read
  std::uint64_t direct_bytes = 0;  // of them past the page cache
  double seconds = 0;              // in which at least one read was under way
};

/// Adds up what several threads read at the same time.
class ReadMeter {
 public:
  void begin();  // a read is under way
  void end(std::uint64_t bytes, bool direct);
  void add(std::uint64_t direct_bytes);  // while others are under way
  FileReadTotals totals() const;

 private:
  using Clock = std::chrono::steady_clock;
  mutable std::mutex mu_;
  // Guarded by mu_.
  int reads_ = 0;
  Clock::time_point since_;  // where reads_ > 0
  Clock::duration busy_{};
  std::uint64_t bytes_ = 0, direct_bytes_ = 0;
};

class FileReads {
 public:
  explicit FileReads(const FileReadOptions& options) : options_(options) {}

  std::unique_ptr<ExtentReader> reader();
  /// One part of a file, of out.size() bytes, by a reader that is kept. Throws: as ExtentReader::read().
  void read(const std::filesystem::path& file, std::uint64_t begin, std::span<std::byte> out);
  const FileReadOptions& options() const { return options_; }
  FileReadTotals totals() const { return meter_.totals(); }

 private:
  const FileReadOptions options_;
  ReadMeter meter_;
  std::mutex mu_;
  std::vector<std::unique_ptr<ExtentReader>> idle_;  // guarded by mu_
};

/// Throws: as the functions of it, and as open_data_file().
std::unique_ptr<ExtentReader> make_cached_reader(ReadMeter& meter);

/// Past the page cache. begin() is false where one of the files cannot be read so, and nothing was begun.
class DirectReader {
 public:
  virtual ~DirectReader() = default;
  virtual bool begin(const std::vector<FileExtent>& extents) = 0;
  virtual void read(std::span<std::byte> out) = 0;
};
/// Null where the kernel, or the build, has no io_uring.
std::unique_ptr<DirectReader> make_direct_reader(const FileReadOptions& options, ReadMeter& meter);

}  // namespace braid
