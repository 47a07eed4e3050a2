#include "launch/child_process.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "base/error.h"
#include "launch/file_descriptor.h"

namespace braid::launch {
namespace {

/// Null-terminated array of pointers into `texts`, as exec takes it.
std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// Puts `source` in the place of `target`, also where the two are the same and would close on exec.
bool redirect(int source, int target) {
  if (source == target) return ::fcntl(source, F_SETFD, 0) == 0;
  return ::dup2(source, target) >= 0;
}

struct Prepared {
  char* const* argv;
  char* const* environment;
  int in;
  int out;
  int err;
  pid_t parent;
};

/// Between fork and exec: calls nothing that may lock or allocate. Returns only when it fails, with errno
/// set.
void become(const Prepared& prepared) {
  ::setpgid(0, 0);
  // The request dies with the parent; asked for after the parent is gone, it would never come.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != prepared.parent) ::_exit(128 + SIGKILL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  // Handlers are reset by exec, ignored signals are not.
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(number, SIG_DFL);
  // Its group is in the background of a terminal, to which it may write even under `stty tostop`.
  ::signal(SIGTTOU, SIG_IGN);
  if (!redirect(prepared.in, STDIN_FILENO)) return;
  // Standard error's target may be the descriptor that standard output is about to replace.
  const int err = prepared.err == STDOUT_FILENO ? ::dup(prepared.err) : prepared.err;
  if (err < 0 || !redirect(prepared.out, STDOUT_FILENO) || !redirect(err, STDERR_FILENO)) return;
  ::execvpe(prepared.argv[0], prepared.argv, prepared.environment);
}

/// Processes of this host that the kernel has killed as the machine, or their control group, was out of
/// memory.
std::uint64_t memory_kills() {
  std::ifstream in("/proc/vmstat");
  std::uint64_t count = 0;
  for (std::string name; in >> name >> count;)
    if (name == "oom_kill") return count;
  return 0;
}

/// Before the first child was started.
std::uint64_t memory_kills_before() {
  static const std::uint64_t before = memory_kills();
  return before;
}

}  // namespace

std::string describe_exit(const ExitStatus& status) {
  if (status.signal == 0) return fmt::format("exited with code {}", status.code);
  std::string text = fmt::format("was killed by signal {} ({})", status.signal, ::strsignal(status.signal));
  if (const std::uint64_t killed = memory_kills() - memory_kills_before();
      status.signal == SIGKILL && killed > 0)
    text += fmt::format("; the kernel has killed {} of this host since the start for lack of memory",
                        killed == 1 ? "a process" : fmt::format("{} processes", killed));
  return text;
}

ChildProcess::ChildProcess(const ChildCommand& command) {
  if (command.argv.empty()) throw InvalidArgument("[launch] no command to run");
  memory_kills_before();
  std::vector<std::string> arguments = command.argv;
  std::vector<std::string> variables;
  for (const auto& [name, value] : command.environment)
    variables.push_back(fmt::format("{}={}", name, value));
  const std::vector<char*> argv = pointers_to(arguments);
  const std::vector<char*> environment = pointers_to(variables);
  const FileDescriptor empty(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  Pipe failure = make_pipe();
  const Prepared prepared{argv.data(), environment.data(), command.in < 0 ? empty.get() : command.in,
                          command.out, command.err,        ::getpid()};

  pid_ = ::fork();
  if (pid_ < 0) throw Unavailable(fmt::format("[launch] cannot start a process: {}", std::strerror(errno)));
  if (pid_ == 0) {
    become(prepared);
    const int reason = errno;
    [[maybe_unused]] const ssize_t told = ::write(failure.write_end.get(), &reason, sizeof(reason));
    ::_exit(127);
  }
  ::setpgid(pid_, pid_);  // whoever comes first; a signal to the group must not miss it
  failure.write_end.reset();
  ::fcntl(failure.read_end.get(), F_SETFL, 0);
  int reason = 0;
  ssize_t got;
  do got = ::read(failure.read_end.get(), &reason, sizeof(reason));
  while (got < 0 && errno == EINTR);
  if (got == sizeof(reason)) {
    ::waitpid(std::exchange(pid_, -1), nullptr, 0);
    throw InvalidArgument(
        fmt::format("[launch] cannot run '{}': {}", command.argv[0], std::strerror(reason)));
  }
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), status_(other.status_) {}

ChildProcess::~ChildProcess() {
  if (pid_ < 0 || poll()) return;
  signal(SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void ChildProcess::signal(int number) noexcept {
  if (pid_ > 0 && !status_) ::kill(-pid_, number);
}

std::optional<ExitStatus> ChildProcess::poll() noexcept {
  if (pid_ < 0 || status_) return status_;
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
    // Somebody else has waited for it: it is gone, and nobody knows how it ended.
    if (errno == ECHILD) status_ = ExitStatus{kExitFailed, 0};
    return status_;
  }
  if (info.si_pid == 0) return std::nullopt;
  // Before the process is reaped its id, which is the group's, cannot belong to anybody else.
  ::kill(-pid_, SIGKILL);
  int status = 0;
  ::waitpid(pid_, &status, 0);
  status_ = WIFSIGNALED(status) ? ExitStatus{128 + WTERMSIG(status), WTERMSIG(status)}
                                : ExitStatus{WEXITSTATUS(status), 0};
  return status_;
}

bool ChildProcess::is_stopped() const noexcept {
  if (pid_ < 0 || status_) return false;
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid != 0;
}

}  // namespace braid::launch
