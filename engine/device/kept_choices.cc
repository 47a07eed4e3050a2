#include "engine/device/kept_choices.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <optional>
#include <system_error>

#include "base/env.h"
#include "base/error.h"
#include "base/files.h"
#include "base/init.h"
#include "base/log.h"

namespace braid {
namespace {

/// Nothing where the file is not there, of another key, or not what this writes.
std::optional<int> choice_in(const std::filesystem::path& path, const std::string& key, int ways) {
  std::error_code missing;
  if (!std::filesystem::exists(path, missing)) return std::nullopt;
  const std::string content = read_file(path), head = key + '\n';
  if (!content.starts_with(head) || content.back() != '\n') return std::nullopt;
  int choice = -1;
  const char *begin = content.data() + head.size(), *end = content.data() + content.size() - 1;
  const auto [last, error] = std::from_chars(begin, end, choice);
  if (error != std::errc() || last != end || choice < 0 || choice >= ways) return std::nullopt;
  return choice;
}

/// Puts a file there if there is none of this key yet.
void keep(const std::filesystem::path& path, const std::string& key, int choice, bool replace) {
  std::filesystem::create_directories(path.parent_path());
  const std::filesystem::path own = path.string() + fmt::format(".{}", ::getpid());
  write_file_atomically(own, fmt::format("{}\n{}\n", key, choice));
  std::error_code error;
  if (replace)
    std::filesystem::rename(own, path, error);
  else
    std::filesystem::create_hard_link(own, path, error);  // fails where there is one
  std::error_code ignored;
  std::filesystem::remove(own, ignored);
}

}  // namespace

int KeptChoices::get(const std::string& key, int ways, const std::function<int()>& measure) {
  const std::lock_guard lock(mu_);
  if (const auto at = known_.find(key); at != known_.end() && at->second < ways) return at->second;
  const std::filesystem::path path =
      folder_.empty() ? folder_ : folder_ / fmt::format("{:016x}", stable_hash(key));
  std::optional<int> choice;
  try {
    if (!path.empty()) choice = choice_in(path, key, ways);
  } catch (const std::exception& error) {
    log_debug("kept choices: {}", error.what());
  }
  if (!choice) {
    std::error_code missing;
    const bool is_damaged = !path.empty() && std::filesystem::exists(path, missing);
    choice = measure();
    try {
      if (!path.empty()) {
        keep(path, key, *choice, is_damaged);
        if (const auto first = choice_in(path, key, ways)) choice = first;
      }
    } catch (const std::exception& error) {
      log_debug("kept choices: {}", error.what());
    }
  }
  known_[key] = *choice;
  return *choice;
}

KeptChoices& KeptChoices::process() {
  static auto* choices = new KeptChoices(default_folder());
  return *choices;
}

std::filesystem::path KeptChoices::default_folder() {
  if (const auto cache = env_string("XDG_CACHE_HOME"); cache && !cache->empty())
    return std::filesystem::path(*cache) / "braid" / "choices";
  if (const auto home = env_string("HOME"); home && !home->empty())
    return std::filesystem::path(*home) / ".cache" / "braid" / "choices";
  return {};
}

}  // namespace braid
