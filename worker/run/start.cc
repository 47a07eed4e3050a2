#include "worker/run/start.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "base/checkpoint_run.h"
#include "base/log.h"
#include "comm/communicator.h"
#include "proto/job.pb.h"
#include "ps/client/ps_client.h"
#include "worker/process/share_text.h"

namespace braid::worker {
namespace {

constexpr std::chrono::seconds kFarewellTime{10};
constexpr std::chrono::milliseconds kLockPoll{50};

/// An early word, before data is read and streams are measured: without it a job would find out at its first
/// checkpoint.
void make_directory(const std::filesystem::path& directory) {
  const auto refuse = [&](const std::string& why) {
    throw InvalidArgument("checkpoint.directory '" + directory.string() + "': " + why);
  };
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) refuse("cannot be made: " + error.message());
  if (!std::filesystem::is_directory(directory, error)) refuse("is not a directory");
  if (::access(directory.c_str(), W_OK | X_OK) != 0) refuse(std::strerror(errno));
}

/// Two that write checkpoints of one run would remove each other's. One that ends may take a moment.
DirectoryLock lock_directory(const std::string& directory, RunStart how, const WaitContext& wait) {
  const WaitContext patience = wait.at_most(kFarewellTime);
  DirectoryLock lock;
  while (!lock.take(directory)) {
    if (!patience.expired() && !patience.stopped()) {
      std::this_thread::sleep_for(kLockPoll);
      continue;
    }
    const std::string what =
        fmt::format("checkpoint.directory '{}': {} writes its checkpoints there", directory, lock.holder());
    if (how == RunStart::Resume) throw Unavailable(what + "; end that one first");
    throw InvalidArgument(what + "; choose another directory, or end that one first");
  }
  return lock;
}

StartedRun leaders_run(const proto::Job& job, RunStart how, const WaitContext& wait) {
  const std::string& directory = job.checkpoint().directory();
  RunDirectory of_run;
  if (!job.run_directory().empty()) of_run = RunDirectory(job.run_directory(), how);
  if (directory.empty()) {
    if (how == RunStart::New) return {};
    throw InvalidArgument(std::string(how == RunStart::Resume ? "--resume" : "--overwrite") +
                          " needs checkpoint.directory in the job");
  }
  make_directory(directory);
  DirectoryLock lock = lock_directory(directory, how, wait);
  CheckpointStore store(directory);
  const bool continued = how == RunStart::Resume && store.current_run().has_value();
  const std::optional<CheckpointRun> earlier = store.current_run();
  CheckpointRun run = store.begin_run(how);
  if (how == RunStart::Overwrite)
    log_info("checkpoint.directory '{}': {}; its first checkpoint replaces the earlier ones", directory,
             run.describe());
  std::unique_ptr<ReplacedRun> replaced;
  if (how == RunStart::Overwrite && earlier)
    replaced = std::make_unique<ReplacedRun>(directory, *earlier, run);
  return {std::move(run), continued, std::move(of_run), std::move(lock), std::move(replaced)};
}

/// `error` of the leader is thrown on all workers; empty: none.
void share_error(std::optional<ErrorRecord> error, comm::Communicator& communicator,
                 const WaitContext& wait) {
  std::int64_t code = error ? static_cast<std::int64_t>(error->code) : 0;
  communicator.broadcast(&code, 1, DType::Int64, 0, StreamRef::host(), wait);
  if (code == 0) return;
  std::string text = error ? error->message : std::string();
  share_text(text, communicator, wait);
  try {
    communicator.barrier(
        wait.at_most(kFarewellTime));  // a leader that is gone too soon may take its words along
  } catch (const Error&) {
  }
  throw_error(static_cast<ErrorCode>(code), text);
}

}  // namespace

ReplacedRun::ReplacedRun(std::filesystem::path directory, CheckpointRun earlier, CheckpointRun replacing)
    : directory_(std::move(directory)), earlier_(std::move(earlier)), replacing_(std::move(replacing)) {}

void ReplacedRun::give_back() const {
  if (earlier_.number > 0)
    write_run_file(directory_, earlier_);
  else  // from before runs were told apart
    std::filesystem::remove(directory_ / "RUN");
}

ReplacedRun::~ReplacedRun() {
  if (begun_) return;
  try {
    if (const auto named = read_run_file(directory_); named && named->same_as(replacing_)) give_back();
  } catch (const std::exception& error) {
    log_warning("checkpoint.directory '{}': {}", directory_.string(), error.what());
  }
}

StartedRun start_run(const proto::Job& job, RunStart how, const Peers& peers, const WaitContext& wait) {
  const std::string& directory = job.checkpoint().directory();
  StartedRun run;
  std::optional<ErrorRecord> refused;
  if (peers.leader()) {
    try {
      run = leaders_run(job, how, wait);
    } catch (const Error& error) {
      refused = {error.code(), error.message()};
    }
  }
  if (peers.communicator && peers.world > 1)
    share_error(refused, *peers.communicator, wait);
  else if (refused)
    throw_error(*refused);
  if (!peers.leader() && !directory.empty() && how == RunStart::Resume) {
    run.id = CheckpointStore(directory).current_run();
    run.continued = run.id && run.id->number > 1;  // --resume begins a first run at most
  }
  return run;
}

void tell_refusal(const Peers& peers, const Error& error) {
  if (!peers.leader() || !peers.servers || exit_code_for(error.code()) != kExitBadInput) return;
  try {
    peers.servers->refuse({error.code(), error.message()}, WaitContext::with_timeout(kFarewellTime));
  } catch (const Error& silent) {
    log_warning("the other workers could not be told: {}", silent.message());
  }
}

}  // namespace braid::worker
