#include "engine/input/stream/file_feed.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/input/files/data_file.h"

namespace braid {
namespace {

using Clock = std::chrono::steady_clock;
/// Between two questions whether the process is asked to stop.
constexpr std::chrono::milliseconds kSlice{100};

class DirectoryFeed : public FileFeed {
 public:
  DirectoryFeed(GrowingDirectory directory, std::vector<TakenFile> taken)
      : directory_(std::move(directory)), taken_(std::move(taken)) {
    for (const TakenFile& file : taken_) names_.insert(file.name);
    while (known_ < taken_.size() && taken_[known_].rows >= 0) ++known_;
  }

  std::size_t known() override { return known_; }
  std::vector<TakenFile> taken() const override {
    std::lock_guard lock(mu_);
    return taken_;
  }

  std::optional<TakenFile> get(std::size_t n, const std::stop_token& stop) override {
    std::unique_lock lock(mu_);
    const Clock::time_point deadline = Clock::now() + directory_.idle;
    for (;;) {
      if (n < taken_.size()) return taken_[n];
      if (!ended_ && Clock::now() >= next_look_) look();
      if (n < taken_.size()) continue;
      if (ended_ || (directory_.asked_to_stop && directory_.asked_to_stop())) return std::nullopt;
      if (stop.stop_requested()) throw Cancelled("input: nobody waits for new files any more");
      if (Clock::now() >= deadline) {
        log_info("input: no new file for {:g} s (input.follow.idle_seconds), so the input ends",
                 std::chrono::duration<double>(directory_.idle).count());
        ended_ = true;
        return std::nullopt;
      }
      const Clock::time_point until = std::min({deadline, next_look_, Clock::now() + kSlice});
      changed_.wait_until(lock, stop, until, [] { return false; });
    }
  }

  void opened(std::size_t n, const TakenFile& file) override {
    std::lock_guard lock(mu_);
    taken_.at(n) = file;
  }

 private:
  /// REQUIRES: the lock.
  void look() {
    const bool last = directory_.has_ended && directory_.has_ended();  // before what is there is listed
    std::map<std::string, FileStamp> unsettled;
    std::vector<std::string> fresh;
    for (const std::filesystem::path& path : directory_.list()) {
      const std::string name = path.string();
      if (names_.contains(name)) continue;
      if (name.find('\n') != std::string::npos)
        throw InvalidArgument("input: the name of file '" + name + "' has a line break");
      FileStamp stamp;
      try {
        stamp = stamp_of(path);
      } catch (const Error&) {
        continue;  // it was renamed or removed meanwhile
      }
      const auto before = seen_.find(name);
      if (before != seen_.end() && before->second == stamp)
        fresh.push_back(name);
      else
        unsettled.emplace(name, stamp);
    }
    std::ranges::sort(fresh);
    for (std::string& name : fresh) {
      log_info("input: file {} is '{}'", taken_.size() + 1, name);
      names_.insert(name);
      taken_.push_back({std::move(name)});
    }
    seen_ = std::move(unsettled);
    if (last && seen_.empty()) ended_ = true;
    next_look_ = Clock::now() + directory_.poll;
  }

  // Set once.
  const GrowingDirectory directory_;
  std::size_t known_ = 0;

  mutable std::mutex mu_;
  std::condition_variable_any changed_;
  // Guarded by mu_.
  std::vector<TakenFile> taken_;
  std::set<std::string> names_;            // of those
  std::map<std::string, FileStamp> seen_;  // that the last look found for the first time, or changed
  Clock::time_point next_look_{};
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<FileFeed> follow_directory(GrowingDirectory directory, std::vector<TakenFile> taken) {
  return std::make_unique<DirectoryFeed>(std::move(directory), std::move(taken));
}

std::string text_of(const std::vector<TakenFile>& files) {
  std::string text;
  for (const TakenFile& file : files)
    text += fmt::format("{} {} {}\n", file.rows, file.fingerprint, file.name);
  return text;
}

std::vector<TakenFile> taken_files(const std::string& text) {
  std::vector<TakenFile> files;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    TakenFile file;
    const char* const end = line.data() + line.size();
    const auto rows = std::from_chars(line.data(), end, file.rows);
    const bool has_rows = rows.ec == std::errc() && rows.ptr != end && *rows.ptr == ' ';
    const auto print = has_rows ? std::from_chars(rows.ptr + 1, end, file.fingerprint) : rows;
    if (!has_rows || print.ec != std::errc() || print.ptr == end || *print.ptr != ' ')
      throw DataLoss("'" + line + "' is no file of an input that grows");
    file.name.assign(print.ptr + 1, end);
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace braid
