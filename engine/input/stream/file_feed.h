// The files of an input that grows, in the order in which they are taken, each once. Who reads the directory
// decides the order; others hear of it (worker/input/followed_input.h).
//
// A file counts when two looks in a row have found it alike in size and time of change: one that is written
// under another name, or in another directory, and then renamed is whole from its first sight. What one look
// finds is ordered by name and comes behind all that is taken.
//
// Thread rule: any number of threads.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace braid {

struct TakenFile {
  std::string name;
  std::int64_t rows = -1;  // -1: nobody has counted them
  std::uint64_t fingerprint = 0;
  friend bool operator==(const TakenFile&, const TakenFile&) = default;
};

class FileFeed {
 public:
  virtual ~FileFeed() = default;
  /// The n-th file; waits until there is one. Nothing: there are n, and no more will come. Throws: Cancelled
  /// once `stop` is requested; DeadlineExceeded.
  virtual std::optional<TakenFile> get(std::size_t n, const std::stop_token& stop) = 0;
  /// Whoever opened the n-th file says what is in it.
  virtual void opened(std::size_t /*n*/, const TakenFile& /*file*/) {}
  /// Files that were taken, and opened, before the process began.
  virtual std::size_t known() { return 0; }
  /// All that were taken so far, also those that nobody has opened: what a checkpoint keeps.
  virtual std::vector<TakenFile> taken() const { return {}; }
};

struct GrowingDirectory {
  std::function<std::vector<std::filesystem::path>()> list;  // all files that count by their names
  std::function<bool()> has_ended;                           // the stop file is there
  std::function<bool()> asked_to_stop;                       // the process is: the input ends
  std::chrono::nanoseconds poll = std::chrono::seconds(1);
  std::chrono::nanoseconds idle = std::chrono::hours(1);  // of one wait for a file; then the input ends
};

/// `taken`: of an earlier run that this one continues, in their order.
std::unique_ptr<FileFeed> follow_directory(GrowingDirectory directory, std::vector<TakenFile> taken);

/// "<rows> <fingerprint> <name>" a line, as a checkpoint has it. Throws: DataLoss (no such text).
std::string text_of(const std::vector<TakenFile>& files);
std::vector<TakenFile> taken_files(const std::string& text);

}  // namespace braid
