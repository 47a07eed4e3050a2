#include "worker/checkpoint/held_checkpoints.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <iterator>
#include <string>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace braid::worker {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kTaken = "taken";
constexpr std::chrono::milliseconds kGlance{20};  // at the directory's time
/// At what is in it, in any case: clocks of file systems are coarse, and within one tick something may change
/// twice.
constexpr std::chrono::seconds kLook{2};

std::string this_host() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "host";
  return name.data();
}

std::string prefix() { return CheckpointStore::kReaderPrefix + this_host() + "-"; }

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
      look_(std::move(look)) {
  remove_leftovers(root_);
  std::error_code error;
  fs::create_directories(links_, error);  // else nobody leaves anything there
}

HeldCheckpoints::~HeldCheckpoints() {
  std::error_code ignored;
  fs::remove_all(links_, ignored);
}

std::optional<CheckpointInfo> HeldCheckpoints::take(std::chrono::milliseconds patience) {
  std::error_code ignored;
  fs::remove_all(links_ / kTaken, ignored);
  const auto end = Clock::now() + patience;
  for (;;) {
    if (may_have_changed())
      if (auto next = find_next()) return next;
    const auto now = Clock::now();
    if (now >= end) return std::nullopt;
    std::this_thread::sleep_for(std::min<Clock::duration>(kGlance, end - now));
  }
}

bool HeldCheckpoints::may_have_changed() {
  std::error_code unseen;
  const fs::file_time_type time = fs::last_write_time(root_, unseen);
  if (unseen) return false;  // it is not there yet
  const auto now = Clock::now();
  if (time == changed_at_ && now - looked_at_ < kLook) return false;
  changed_at_ = time;
  looked_at_ = now;
  return true;
}

std::optional<CheckpointInfo> HeldCheckpoints::find_next() {
  const std::vector<CheckpointInfo> listed = look_();
  if (!listed.empty() && !(run_ && run_->same_as(listed.back().meta.run))) {
    run_ = listed.back().meta.run;
    last_.reset();
  }
  if (!run_) return std::nullopt;  // nobody knows yet which run is followed
  // After the list: what goes from it is here before. And first of two of one step: it stays.
  std::vector<CheckpointInfo> found = left_here();
  std::copy_if(listed.begin(), listed.end(), std::back_inserter(found),
               [&](const CheckpointInfo& info) { return is_due(info.meta); });
  const auto next = std::min_element(
      found.begin(), found.end(),
      [](const CheckpointInfo& a, const CheckpointInfo& b) { return a.meta.step < b.meta.step; });
  if (next == found.end()) return std::nullopt;
  changed_at_.reset();  // there may be more, or it is pruned at this moment
  auto taken = linked(std::move(*next));
  if (taken) last_ = taken->meta.step;
  return taken;
}

/// Whole checkpoints that were pruned and have yet to be taken. All others of them go.
std::vector<CheckpointInfo> HeldCheckpoints::left_here() const {
  std::vector<CheckpointInfo> left;
  std::error_code unseen;
  for (const auto& entry : fs::directory_iterator(links_, unseen)) {
    if (!entry.path().filename().string().starts_with(CheckpointStore::kPrunedPrefix)) continue;
    try {
      CheckpointInfo info = read_checkpoint(entry.path());
      if (is_due(info.meta)) {
        left.push_back(std::move(info));
        continue;
      }
    } catch (const DataLoss& error) {
      log_warning("left out: {}", error.message());
    }
    fs::remove_all(entry.path(), unseen);
  }
  return left;
}

bool HeldCheckpoints::is_due(const CheckpointMeta& meta) const {
  return meta.run.same_as(*run_) && (!last_ || meta.step > *last_);
}

/// Nothing when it has gone meanwhile: then it is left here, if it could be.
std::optional<CheckpointInfo> HeldCheckpoints::linked(CheckpointInfo info) {
  if (!links_work_ || info.directory.parent_path() == links_) return info;
  std::error_code ignored;
  const fs::path mine = links_ / kTaken;
  fs::remove_all(mine, ignored);
  fs::create_directories(links_, ignored);
  const std::error_code error = link_checkpoint(info, mine);
  if (!error) {
    info.directory = mine;
    return info;
  }
  fs::remove_all(mine, ignored);
  if (!fs::exists(info.directory, ignored)) return std::nullopt;
  links_work_ = false;
  log_warning("checkpoints in '{}' cannot be linked ({}): those that are pruned early are not measured",
              root_.string(), error.message());
  return info;
}

}  // namespace braid::worker
