#include "launch/line_sink.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace braid::launch {
namespace {

constexpr std::string_view kEraseLine = "\r\x1b[K";

/// A pipe or terminal opened once more, so that it does not block us and nobody else. Closed for other files,
/// and where the system refuses: the user has changed since it was made, or there is no /proc.
FileDescriptor open_again(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return {};
  if (!S_ISFIFO(status.st_mode) && ::isatty(descriptor) == 0) return {};
  const std::string path = fmt::format("/proc/self/fd/{}", descriptor);
  return FileDescriptor(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

}  // namespace

LineSink::LineSink(int descriptor)
    : given_(descriptor), terminal_(::isatty(descriptor) == 1), own_(open_again(descriptor)) {}

bool LineSink::same_target(int one, int other) {
  struct stat a {
  }, b{};
  return ::fstat(one, &a) == 0 && ::fstat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

void LineSink::write_line(std::string_view prefix, std::string_view line) {
  if (gone_) return;
  text_ += fmt::format("{}{}{}\n", terminal_ ? kEraseLine : "", prefix, line);
  flush();
}

std::size_t LineSink::room() const {
  if (own_.is_open()) return pending();
  // Of a descriptor that may block: what is said to be writable takes so much.
  pollfd writable{given_, POLLOUT, 0};
  if (::poll(&writable, 1, 0) <= 0) return 0;
  return std::min<std::size_t>(pending(), PIPE_BUF);
}

void LineSink::flush() {
  while (pending() > 0) {
    const std::size_t bytes = room();
    const ssize_t written = bytes == 0 ? 0 : ::write(descriptor(), text_.data() + written_, bytes);
    if (bytes == 0 || (written < 0 && errno == EAGAIN)) break;
    if (written >= 0) {
      written_ += static_cast<std::size_t>(written);
    } else if (errno != EINTR) {
      gone_ = errno != ENOSPC && errno != EDQUOT;
      written_ = text_.size();
    }
  }
  if (written_ < pending()) return;  // so that a byte is moved once at most
  text_.erase(0, written_);
  written_ = 0;
}

}  // namespace braid::launch
