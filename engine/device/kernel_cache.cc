#include "engine/device/kernel_cache.h"

#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <thread>

#include "base/crc32c.h"
#include "base/env.h"
#include "base/error.h"
#include "base/files.h"
#include "base/init.h"
#include "base/log.h"

namespace braid {
namespace {

constexpr std::string_view kMagic = "BRAIDKRN";
constexpr std::uint32_t kVersion = 1;

struct Header {
  char magic[8];
  std::uint32_t version, checksum;
  std::uint64_t key_bytes;
};

/// Keys of one name replace each other's files, which hold their whole key.
std::string file_name(const std::string& key) { return fmt::format("{:016x}.cubin", stable_hash(key)); }

std::uint32_t checksum_of(std::string_view body) { return crc32c(std::as_bytes(std::span(body))); }

std::string file_content(const std::string& key, const std::string& code) {
  const std::string body = key + code;
  Header header{};
  std::memcpy(header.magic, kMagic.data(), sizeof header.magic);
  header.version = kVersion;
  header.checksum = checksum_of(body);
  header.key_bytes = key.size();
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + body;
}

/// Nothing where the file is of another key, cut off or damaged.
std::optional<std::string> code_of(const std::string& content, const std::string& key) {
  Header header{};
  if (content.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, content.data(), sizeof header);
  const std::string_view body = std::string_view(content).substr(sizeof header);
  if (std::memcmp(header.magic, kMagic.data(), sizeof header.magic) != 0 || header.version != kVersion ||
      header.key_bytes != key.size() || body.size() <= key.size() || !body.starts_with(key) ||
      checksum_of(body) != header.checksum)
    return std::nullopt;
  return std::string(body.substr(key.size()));
}

}  // namespace

struct KernelCache::State {
  struct Entry {
    Code code;
    std::string error;
    bool done = false;
  };

  std::filesystem::path folder;
  std::string setting;
  Compile compile;
  std::mutex mutex;
  std::condition_variable changed;
  std::unordered_map<std::string, Entry> entries;  // by source; guarded by mutex, as all below
  std::deque<std::string> waiting;
  int workers = 0;
  std::int64_t compiled = 0, loaded = 0;

  std::string make(const std::string& source, bool& from_disk) {
    const std::string key = setting + '\n' + source;
    const std::filesystem::path path = folder.empty() ? folder : folder / file_name(key);
    if (!path.empty()) {
      std::error_code missing;
      if (std::filesystem::exists(path, missing)) {
        try {
          if (auto code = code_of(read_file(path), key)) {
            from_disk = true;
            return std::move(*code);
          }
          log_debug("kernel cache: {} is damaged and made anew", path.string());
        } catch (const std::exception& error) {
          log_debug("kernel cache: {}", error.what());
        }
      }
    }
    std::string code = compile(source);
    if (!path.empty()) {
      try {
        std::filesystem::create_directories(folder);
        write_file_atomically(path, file_content(key, code));
      } catch (const std::exception& error) {
        log_debug("kernel cache: {}", error.what());
      }
    }
    return code;
  }

  void work() {
    std::unique_lock lock(mutex);
    while (!waiting.empty()) {
      const std::string source = std::move(waiting.front());
      waiting.pop_front();
      lock.unlock();
      Entry made;
      bool from_disk = false;
      try {
        made.code = std::make_shared<const std::string>(make(source, from_disk));
      } catch (const std::exception& error) {
        made.error = error.what();
      }
      made.done = true;
      lock.lock();
      (from_disk ? loaded : compiled) += made.code ? 1 : 0;
      entries[source] = std::move(made);
      changed.notify_all();
    }
    --workers;
  }
};

KernelCache::KernelCache(std::filesystem::path folder, std::string setting, Compile compile)
    : state_(std::make_shared<State>()) {
  state_->folder = std::move(folder);
  state_->setting = std::move(setting);
  state_->compile = std::move(compile);
}

KernelCache::~KernelCache() = default;

std::vector<KernelCache::Code> KernelCache::get(std::span<const std::string> sources, int threads,
                                                std::chrono::nanoseconds limit, std::string& why) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  for (const std::string& source : sources)
    if (state.entries.try_emplace(source).second) state.waiting.push_back(source);
  for (; state.workers < threads && state.workers < static_cast<int>(state.waiting.size()); ++state.workers)
    std::thread([held = state_] { held->work(); }).detach();
  const auto is_done = [&] {
    for (const std::string& source : sources)
      if (!state.entries[source].done) return false;
    return true;
  };
  const bool in_time = state.changed.wait_until(lock, deadline, is_done);
  std::vector<Code> codes;
  for (const std::string& source : sources) {
    const State::Entry& entry = state.entries[source];
    codes.push_back(entry.code);
    if (!entry.code && why.empty()) why = entry.done ? entry.error : "it took too long";
  }
  if (!in_time && why.empty()) why = "it took too long";
  return codes;
}

std::int64_t KernelCache::compiled() const {
  const std::lock_guard lock(state_->mutex);
  return state_->compiled;
}

std::int64_t KernelCache::loaded() const {
  const std::lock_guard lock(state_->mutex);
  return state_->loaded;
}

std::filesystem::path KernelCache::default_folder() {
  if (const auto cache = env_string("XDG_CACHE_HOME"); cache && !cache->empty())
    return std::filesystem::path(*cache) / "braid" / "kernels";
  if (const auto home = env_string("HOME"); home && !home->empty())
    return std::filesystem::path(*home) / ".cache" / "braid" / "kernels";
  return {};
}

}  // namespace braid
