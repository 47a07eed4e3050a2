#include "launch/file_descriptor.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace braid::launch {

void FileDescriptor::reset() noexcept {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw Unavailable(fmt::format("[launch] cannot make a pipe: {}", std::strerror(errno)));
  Pipe pipe{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
  ::fcntl(pipe.read_end.get(), F_SETFL, O_NONBLOCK);
  return pipe;
}

}  // namespace braid::launch
