// A task on another host, over ssh. What ssh starts there is a shell script that starts the task, passes on
// signals, and ends the task when the connection does, so that nothing outlives the launcher, however that
// ends. The job's token goes through the connection, never over a command line. Thread rule: one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launch/environment.h"
#include "launch/file_descriptor.h"

namespace braid::launch {

struct RemoteCommand {
  std::vector<std::string> ssh;  // "ssh", "-o", "BatchMode=yes"
  std::string host;
  std::vector<std::string> argv;  // the task's; its program is at the same place on all hosts
  std::string directory;          // where it runs; the same on all hosts
  Environment environment;        // what it gets beside that host's own
  int grace_seconds = 30;         // between SIGTERM and SIGKILL when the connection is lost
};

/// What is to be run here. Its standard input is a RemoteControl's.
std::vector<std::string> remote_argv(const RemoteCommand& command);

/// The variables of this process that tasks on other hosts get: those of Braid and NCCL but for the token.
Environment variables_to_send(const Environment& environment);

/// The standard input of such a command.
class RemoteControl {
 public:
  /// Writes the token, which the script waits for. Throws: Unavailable.
  explicit RemoteControl(const std::string& token);
  /// To be given to the command, then closed here.
  FileDescriptor& read_end() { return read_end_; }
  /// SIGTERM or SIGKILL to the task; nothing when the connection is gone.
  void signal(int number) noexcept;

 private:
  void send(std::string_view line) noexcept;

  FileDescriptor read_end_, write_end_;
};

/// 'it''s' of a shell.
std::string shell_quoted(const std::string& text);

}  // namespace braid::launch
