#include "engine/input/files/remote_files.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <thread>

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/input/files/store.h"

namespace braid {
namespace {

using Clock = std::chrono::steady_clock;

Store& store_of(const std::string& name) {
  const std::string_view scheme = scheme_of(name);
  // A name with a password is refused without being said.
  const std::string_view host = std::string_view(name).substr(scheme.size() + 3);
  if (host.substr(0, host.find('/')).find('@') != std::string_view::npos)
    throw InvalidArgument(std::string(scheme) +
                          "://: names have no credentials in them: those come from the environment, as of "
                          "AWS_ACCESS_KEY_ID, or from the store's own files");
  if (scheme == "http" || scheme == "https") return http_store();
  if (scheme == "s3" || scheme == "gs" || scheme == "hdfs") return arrow_store();
  throw InvalidArgument("'" + name + "': " + std::string(scheme) +
                        ":// is read from no store; s3, gs, hdfs, http and https are, and paths");
}

/// Calls `attempt` until it succeeds, or the deadline is over.
template <class Attempt>
auto with_retries(const std::string& name, const char* what, Attempt attempt) {
  constexpr std::chrono::milliseconds kFirst{100}, kLongest{5000};
  const Clock::time_point deadline = Clock::now() + io_deadline();
  std::chrono::milliseconds pause = kFirst;
  for (int tries = 1;; ++tries) {
    try {
      return attempt();
    } catch (const Unavailable& error) {
      if (Clock::now() + pause >= deadline)
        throw Unavailable(fmt::format("'{}': {} failed {} time{} within {} s, the last time: {}", name, what,
                                      tries, tries == 1 ? "" : "s",
                                      std::chrono::duration<double>(io_deadline()).count(), error.message()));
      if (tries == 1) log_warning("'{}': {} is tried again: {}", name, what, error.message());
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongest);
  }
}

class RemoteFile : public DataFile {
 public:
  explicit RemoteFile(const std::string& name)
      : path_(name),
        file_(with_retries(name, "opening", [&] { return store_of(name).open(name); })),
        size_(file_->stamp().size) {}
  std::uint64_t size() const override { return size_; }
  const std::filesystem::path& path() const override { return path_; }
  void read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset + out.size() > size_)
      throw DataLoss(fmt::format("'{}': ends at byte {}, {} bytes at {} were wanted", path_.string(), size_,
                                 out.size(), offset));
    if (out.empty()) return;
    with_retries(path_.native(), "reading", [&] {
      file_->read_at(offset, out);
      return true;
    });
  }

 private:
  const std::filesystem::path path_;
  const std::unique_ptr<StoreFile> file_;
  const std::uint64_t size_;
};

}  // namespace

std::chrono::milliseconds io_deadline() {
  constexpr std::chrono::minutes kDefault{2};
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      env_duration("BRAID_IO_DEADLINE").value_or(kDefault));
}

std::shared_ptr<DataFile> open_remote_file(const std::string& name) {
  return std::make_shared<RemoteFile>(name);
}

FileStamp remote_stamp(const std::string& name) {
  return with_retries(name, "looking", [&] { return store_of(name).open(name)->stamp(); });
}

std::vector<std::string> list_remote(const std::string& pattern) {
  Store& store = store_of(pattern);
  const std::size_t slash = pattern.rfind('/');
  const std::string last = pattern.substr(slash + 1);
  const bool is_pattern = last.find_first_of("*[") != std::string::npos;
  if (!is_pattern && (scheme_of(pattern) == "http" || scheme_of(pattern) == "https")) return {pattern};
  const std::string directory = is_pattern ? pattern.substr(0, slash) : pattern;
  std::vector<std::string> names;
  for (const StoreEntry& entry : with_retries(pattern, "listing", [&] { return store.list(directory); })) {
    const std::string name = entry.name.substr(entry.name.rfind('/') + 1);
    const bool wanted = is_pattern ? ::fnmatch(last.c_str(), name.c_str(), FNM_PERIOD) == 0
                                   : !name.starts_with('.') && !name.starts_with('_');
    if (entry.is_file && wanted) names.push_back(entry.name);
  }
  std::sort(names.begin(), names.end());
  if (names.empty() && !is_pattern) names.push_back(pattern);  // a file, or what opening it will say
  return names;
}

}  // namespace braid
