// A real process of a test: its environment, its output in files, its end with a deadline. Killed, and waited
// for, when the object goes; a child never outlives the test, however that ends. Thread rule: one thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace braid::integration {

using Variables = std::map<std::string, std::string>;

/// Far beyond what any process here takes, on a machine that is busy with other things.
constexpr std::chrono::seconds kLongRun{240};

class Process {
 public:
  /// Starts `command` with this process's environment, without what other launchers left there, and
  /// `variables`, and with no signal ignored. Output goes to "<log>.out" and "<log>.err".
  Process(const std::vector<std::string>& command, const Variables& variables, std::filesystem::path log);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  /// Returns after SIGSTOP when the process stands still: the kernel stops its threads one by one.
  void signal(int number) const;

  /// The exit code, 128 + N after signal N; nothing when it still runs after `limit`.
  std::optional<int> wait(std::chrono::milliseconds limit);
  /// The same, but a process that does not end in time fails the test with its output, and is killed: -1.
  int exit_code(std::chrono::milliseconds limit = kLongRun);

  std::string out() const;
  std::string err() const;
  /// Waits until standard error or output contains `text`; false when it has ended, or `limit` is over,
  /// without.
  bool says(std::string_view text, std::chrono::milliseconds limit = std::chrono::seconds(120));

 private:
  std::filesystem::path log_;
  pid_t pid_ = -1;
  std::optional<int> code_;
};

/// Processes that have `text` in their command line; none that has ended and was not waited for.
int processes_with(const std::string& text);

/// The child of `parent` whose environment contains `text`; 0 when there is none.
pid_t child_with(pid_t parent, const std::string& text);

}  // namespace braid::integration
