#include "worker/run/run_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/files.h"
#include "base/log.h"
#include "base/log_file.h"
#include "proto/job.pb.h"

namespace braid::worker {
namespace {

constexpr const char* kJob = "job.pbtxt";
constexpr const char* kLock = ".lock";
constexpr const char* kReplaced = ".replaced";  // what --overwrite replaces, until the new run begins
constexpr const char* kCurves[] = {"tensorboard", "result.json", "metrics.jsonl"};

[[noreturn]] void refuse(const std::filesystem::path& directory, const std::string& why) {
  throw InvalidArgument("run_directory '" + directory.string() + "': " + why);
}

/// Makes the directory of `file` and says in the field's name why it cannot.
void make_parent(const std::filesystem::path& directory, const std::filesystem::path& parent) {
  std::error_code error;
  std::filesystem::create_directories(parent, error);
  if (error) refuse(directory, "cannot make '" + parent.string() + "': " + error.message());
}

/// What is a run's own in `from` lies in `to`, in the place of what is there.
void move_curves(const std::filesystem::path& from, const std::filesystem::path& to) {
  for (const char* name : kCurves) {
    remove_tree(to / name);
    std::error_code error;
    if (!std::filesystem::exists(from / name, error)) continue;
    std::filesystem::rename(from / name, to / name, error);
    if (error) throw Unavailable("cannot move '" + (from / name).string() + "': " + error.message());
  }
}

/// A run that another was to replace, which never began.
void give_back_replaced(const std::filesystem::path& directory) {
  std::error_code unknown;
  if (!std::filesystem::exists(directory / kReplaced, unknown)) return;
  move_curves(directory / kReplaced, directory);
  remove_tree(directory / kReplaced);
}

}  // namespace

std::string next_run_directory(const std::filesystem::path& directory) {
  std::string name = directory.string();
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  // "runs/a-3" is followed by "runs/a-4".
  const std::size_t dash = name.rfind('-');
  int number = 2;
  if (dash != std::string::npos && dash + 1 < name.size() && name.size() - dash <= 7 &&
      std::all_of(name.begin() + static_cast<std::ptrdiff_t>(dash) + 1, name.end(),
                  [](unsigned char c) { return std::isdigit(c) != 0; })) {
    number = std::stoi(name.substr(dash + 1)) + 1;
    name.resize(dash);
  }
  std::error_code unknown;
  while (std::filesystem::exists(fmt::format("{}-{}", name, number), unknown)) ++number;
  return fmt::format("{}-{}", name, number);
}

bool traces_all_steps(const proto::Job& job) {
  const std::string& file = job.metrics().trace_file();
  const bool is_own = !job.run_directory().empty() &&
                      file == (std::filesystem::path(job.run_directory()) / "trace/%r.json").string();
  return !file.empty() && !is_own;
}

RunDirectory::RunDirectory(std::filesystem::path directory, RunStart how) : directory_(std::move(directory)) {
  make_parent(directory_, directory_);
  const std::string lock = (directory_ / kLock).string();
  lock_ = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0) refuse(directory_, std::string("cannot write into it: ") + std::strerror(errno));
  const auto give_up = [&](const std::string& why) {
    ::close(std::exchange(lock_, -1));
    refuse(directory_, why);
  };
  // A file system without locks has no such protection, and needs no word about it.
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    give_up("another process leads a run in it; --set run_directory=" + next_run_directory(directory_) +
            " begins one beside it");
  if (how == RunStart::New && std::filesystem::exists(directory_ / kJob))
    give_up("there is a run already. --resume goes on with it, --run-dir " + next_run_directory(directory_) +
            " begins another beside it, and --overwrite puts another in its place");
  try {
    give_back_replaced(directory_);  // its leader was killed
    if (how != RunStart::Overwrite) return;
    std::filesystem::create_directory(directory_ / kReplaced);
    move_curves(directory_, directory_ / kReplaced);  // they would be drawn with the new ones
  } catch (const std::exception& error) {
    give_up(error.what());
  }
}

RunDirectory::~RunDirectory() {
  if (lock_ < 0) return;
  try {
    give_back_replaced(directory_);
  } catch (const std::exception& error) {
    log_warning("run_directory '{}': {}", directory_.string(), error.what());
  }
  ::close(lock_);
}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept
    : directory_(std::move(other.directory_)), lock_(std::exchange(other.lock_, -1)) {
  other.directory_.clear();
}

RunDirectory& RunDirectory::operator=(RunDirectory&& other) noexcept {
  std::swap(directory_, other.directory_);
  std::swap(lock_, other.lock_);
  return *this;
}

void RunDirectory::begin(const proto::Job& job) {
  if (directory_.empty()) return;
  remove_tree(directory_ / kReplaced);
  write_file_atomically(directory_ / kJob, job.DebugString());
  log_info("run directory: {}", directory_.string());
}

void RunDirectory::end(const std::string& result) {
  if (directory_.empty()) return;
  try {
    write_file_atomically(directory_ / "result.json", result + "\n");
  } catch (const Error& error) {
    log_warning("run_directory: {}", error.message());
  }
}

void log_into_run_directory(const proto::Job& job, const std::string& role) {
  if (job.run_directory().empty()) return;
  const std::filesystem::path directory = job.run_directory();
  make_parent(directory, directory / "log");
  try {
    log_to_file(directory / "log" / (role + ".log"));
  } catch (const Error& error) {
    refuse(directory, error.message());
  }
}

}  // namespace braid::worker
