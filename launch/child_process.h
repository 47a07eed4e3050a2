// A child process in its own process group that cannot outlive its parent: Linux kills it when the thread
// that started it ends. When it ends, what it left running in its group is ended
// too. Thread rule: one thread makes, polls and destroys it, and lives as long as the child.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "launch/environment.h"

namespace braid::launch {

struct ExitStatus {
  /// The exit code, or 128 + the signal.
  int code = 0;
  /// The signal that ended the process, else 0.
  int signal = 0;
};

/// "exited with code 2", "was killed by signal 9 (Killed)". Who was killed may have been so for lack of
/// memory: where the kernel has done that on this host since the first child was started, it says so.
std::string describe_exit(const ExitStatus& status);

struct ChildCommand {
  /// The program, searched in PATH, and its arguments.
  std::vector<std::string> argv;
  /// All of it; nothing is inherited.
  Environment environment;
  /// Descriptors that become the child's standard output and error.
  int out = 1;
  int err = 2;
  /// Its standard input; -1: empty.
  int in = -1;
};

class ChildProcess {
 public:
  /// Throws: InvalidArgument when the program cannot be run, Unavailable when there can be no further
  /// process.
  explicit ChildProcess(const ChildCommand& command);
  ~ChildProcess();  // kills what still runs
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;

  pid_t pid() const { return pid_; }
  /// To the whole group; nothing when the process has ended.
  void signal(int number) noexcept;
  /// Does not wait. The status, from when the process has ended.
  std::optional<ExitStatus> poll() noexcept;
  /// Whether a signal (SIGSTOP, SIGTSTP) stopped it: then it does nothing, and SIGTERM does not end it.
  bool is_stopped() const noexcept;

 private:
  pid_t pid_ = -1;
  std::optional<ExitStatus> status_;
};

}  // namespace braid::launch
