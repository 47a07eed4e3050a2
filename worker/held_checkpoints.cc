#include "worker/held_checkpoints.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"

namespace braid::worker {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kManifest = "MANIFEST";
constexpr std::chrono::milliseconds kGlance{5};  // at the directory's time
constexpr std::chrono::milliseconds kAgain{50};
constexpr std::chrono::seconds kLook{5};  // at what is in it, in any case
/// Clocks of file systems are coarse: within one tick something may change twice, so it looks once more.
constexpr std::chrono::seconds kTick{1};

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "host";
  return name.data();
}

std::string prefix() { return CheckpointStore::kReaderPrefix + host_name() + "-"; }

/// Links of evaluators of this host that were killed.
void remove_leftovers(const fs::path& root) {
  std::error_code unseen;
  for (const auto& entry : fs::directory_iterator(root, unseen)) {
    const std::string name = entry.path().filename().string(), mine = prefix();
    if (!name.starts_with(mine)) continue;
    pid_t pid = 0;
    std::from_chars(name.data() + mine.size(), name.data() + name.size(), pid);
    if (pid <= 0 || ::kill(pid, 0) == 0 || errno != ESRCH) continue;
    std::error_code ignored;
    fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace

HeldCheckpoints::HeldCheckpoints(fs::path root, std::function<std::vector<CheckpointInfo>()> look)
    : root_(std::move(root)),
      links_(root_ / (prefix() + std::to_string(::getpid()))),
      look_(std::move(look)),
      thread_([this](const std::stop_token& stop) { watch(stop); }) {}

HeldCheckpoints::~HeldCheckpoints() {
  thread_.request_stop();
  thread_.join();
  std::error_code ignored;
  fs::remove_all(links_, ignored);
}

std::optional<CheckpointInfo> HeldCheckpoints::take(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  if (taken_) let_go(*taken_);
  taken_.reset();
  arrived_.wait_for(lock, patience, [this] { return !waiting_.empty() || error_; });
  if (error_) std::rethrow_exception(error_);
  if (waiting_.empty()) return std::nullopt;
  taken_ = std::move(waiting_.front());
  waiting_.pop_front();
  return taken_;
}

void HeldCheckpoints::watch(const std::stop_token& stop) {
  remove_leftovers(root_);
  std::error_code error;
  fs::create_directories(links_, error);  // else nobody leaves anything there
  std::mutex unused;
  std::condition_variable_any ended;
  std::unique_lock lock(unused);
  while (!stop.stop_requested()) {
    try {
      if (has_changed()) {
        std::vector<CheckpointInfo> all = look_();
        add_pruned(all);
        add_new(std::move(all));
      }
    } catch (...) {
      const std::lock_guard guard(mutex_);
      error_ = std::current_exception();
      arrived_.notify_all();
      return;
    }
    ended.wait_for(lock, stop, kGlance, [] { return false; });
  }
}

bool HeldCheckpoints::has_changed() {
  std::error_code unseen;
  const fs::file_time_type time = fs::last_write_time(root_, unseen);
  if (unseen) return false;  // it is not there yet
  const auto now = Clock::now();
  if (time != changed_at_ || now - looked_at_ >= kLook) {
    if (time != changed_at_) changed_seen_ = now;
    changed_at_ = time;
    looked_at_ = now;
    return true;
  }
  if (now - looked_at_ < kAgain || now - changed_seen_ > kTick) return false;
  looked_at_ = now;
  return true;
}

void HeldCheckpoints::add_new(std::vector<CheckpointInfo> all) {
  for (CheckpointInfo& info : all) {
    if (run_ && !run_->same_as(info.meta.run)) {
      const std::lock_guard lock(mutex_);
      for (const CheckpointInfo& old : waiting_) let_go(old);
      waiting_.clear();
    }
    run_ = info.meta.run;
    const Identity identity{info.meta.run.number, info.meta.run.id, info.meta.step};
    if (seen_.contains(identity)) continue;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.size() >= kMostHeld) {
        if (!std::exchange(has_told_, true))
          log_warning("{} checkpoints wait to be measured: those that are pruned before their turn are lost",
                      waiting_.size());
        return;
      }
    }
    seen_.insert(identity);
    if (auto mine = held(std::move(info))) {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(*mine));
      arrived_.notify_all();
    }
  }
}

/// Puts those in front that were pruned before they were seen. Those that were seen go.
void HeldCheckpoints::add_pruned(std::vector<CheckpointInfo>& all) {
  if (all.empty() && !run_) return;  // nobody knows yet which run is followed
  const CheckpointRun followed = all.empty() ? *run_ : all.back().meta.run;
  std::vector<CheckpointInfo> pruned;
  std::error_code unseen;
  for (const auto& entry : fs::directory_iterator(links_, unseen)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("pruned-") || !fs::exists(entry.path() / kManifest, unseen)) continue;
    if (name.ends_with(".unfinished")) continue;
    try {
      CheckpointInfo info = read_checkpoint(entry.path());
      const Identity identity{info.meta.run.number, info.meta.run.id, info.meta.step};
      if (info.meta.run.same_as(followed) && !seen_.contains(identity))
        pruned.push_back(std::move(info));
      else if (const std::lock_guard lock(mutex_); !is_waiting(entry.path()))
        fs::remove_all(entry.path(), unseen);
    } catch (const DataLoss& error) {
      log_warning("left out: {}", error.message());
      fs::remove_all(entry.path(), unseen);
    }
  }
  std::erase_if(all, [&](const CheckpointInfo& listed) {
    return std::any_of(pruned.begin(), pruned.end(),
                       [&](const CheckpointInfo& other) { return other.meta.step == listed.meta.step; });
  });
  all.insert(all.end(), std::make_move_iterator(pruned.begin()), std::make_move_iterator(pruned.end()));
  std::stable_sort(all.begin(), all.end(), [&](const CheckpointInfo& a, const CheckpointInfo& b) {
    const bool a_is = a.meta.run.same_as(followed), b_is = b.meta.run.same_as(followed);
    return a_is != b_is ? b_is : a_is && a.meta.step < b.meta.step;
  });
}

bool HeldCheckpoints::is_waiting(const fs::path& directory) const {
  return (taken_ && taken_->directory == directory) ||
         std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const CheckpointInfo& info) { return info.directory == directory; });
}

/// Nothing when it went meanwhile and nobody left it here.
std::optional<CheckpointInfo> HeldCheckpoints::held(CheckpointInfo info) {
  if (!links_work_ || info.directory.parent_path() == links_) return info;
  const fs::path mine =
      links_ / fmt::format("{}-{}", info.meta.run.number, info.directory.filename().string());
  std::error_code error;
  fs::remove_all(mine, error);
  fs::create_directories(mine, error);
  for (std::size_t i = 0; !error && i <= info.shards.size(); ++i) {
    const std::string file = i < info.shards.size() ? info.shards[i].file : kManifest;
    fs::create_hard_link(info.directory / file, mine / file, error);
  }
  if (!error) {
    info.directory = mine;
    return info;
  }
  std::error_code ignored;
  fs::remove_all(mine, ignored);
  if (error == std::errc::no_such_file_or_directory) {
    const fs::path left = links_ / CheckpointStore::pruned_name(info);  // linked before it was removed
    if (fs::exists(left / kManifest, ignored)) return read_checkpoint(left);
    log_warning("the checkpoint of step {} was removed before it could be kept for its turn", info.meta.step);
    return std::nullopt;
  }
  links_work_ = false;
  log_warning("checkpoints in '{}' cannot be linked ({}): one that is pruned before its turn is not measured",
              root_.string(), error.message());
  return info;
}

void HeldCheckpoints::let_go(const CheckpointInfo& info) const {
  if (info.directory.parent_path() != links_) return;
  std::error_code ignored;
  fs::remove_all(info.directory, ignored);
}

}  // namespace braid::worker
