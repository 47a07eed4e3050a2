#include "launch/remote_task.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "base/error.h"

namespace braid::launch {
namespace {

/// ssh ends with this when it cannot connect, or loses the connection.
constexpr std::string_view kScript = R"sh(exec 3<&0
IFS= read -r BRAID_TOKEN <&3 || exit 138
export BRAID_TOKEN
{variables}cd {directory} || exit 2
{command} </dev/null 3<&- &
task=$!
( while read -r signal <&3; do kill -s "$signal" $task; done
  kill -s TERM $task; sleep {grace}; kill -s KILL $task ) >/dev/null 2>&1 &
watcher=$!
wait $task
code=$?
kill $watcher 2>/dev/null
exit $code)sh";

}  // namespace

std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::vector<std::string> remote_argv(const RemoteCommand& command) {
  std::string variables, words;
  for (const auto& [name, value] : command.environment)
    variables += fmt::format("export {}={}\n", name, shell_quoted(value));
  for (const std::string& word : command.argv) words += (words.empty() ? "" : " ") + shell_quoted(word);
  const std::string script =
      fmt::format(fmt::runtime(kScript), fmt::arg("variables", variables),
                  fmt::arg("directory", shell_quoted(command.directory)), fmt::arg("command", words),
                  fmt::arg("grace", command.grace_seconds));
  std::vector<std::string> argv = command.ssh;
  argv.push_back(command.host);
  argv.push_back("exec sh -c " + shell_quoted(script));  // whatever shell the user has there
  return argv;
}

Environment variables_to_send(const Environment& environment) {
  Environment sent;
  for (const auto& [name, value] : environment)
    if ((name.starts_with("BRAID_") || name.starts_with("NCCL_")) && name != "BRAID_TOKEN" &&
        name != "BRAID_TOKEN_FILE")
      sent[name] = value;
  return sent;
}

RemoteControl::RemoteControl(const std::string& token) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw Unavailable(fmt::format("[launch] cannot make a socket pair: {}", std::strerror(errno)));
  read_end_ = FileDescriptor(ends[0]);
  write_end_ = FileDescriptor(ends[1]);
  send(token + "\n");
}

void RemoteControl::send(std::string_view line) noexcept {
  // Without SIGPIPE: that the connection is gone is seen when ssh ends.
  [[maybe_unused]] const ssize_t sent =
      ::send(write_end_.get(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void RemoteControl::signal(int number) noexcept { send(number == SIGKILL ? "KILL\n" : "TERM\n"); }

}  // namespace braid::launch
