#include "engine/input/files/standard_input.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <vector>

#include "base/error.h"
#include "engine/input/files/store.h"

namespace braid {
namespace {

constexpr std::size_t kRepeated = std::size_t{1} << 20;

/// What was read of it, as long as that can be repeated.
struct PipeState {
  std::vector<char> first;
  bool passed = false;  // somebody has read on
};

PipeState& pipe_state() {
  static PipeState state;
  return state;
}

std::size_t read_pipe(std::span<char> out) {
  pollfd wait{STDIN_FILENO, POLLIN, 0};
  const auto most =
      static_cast<int>(std::min<std::int64_t>(io_deadline().count(), std::numeric_limits<int>::max()));
  for (;;) {
    const int ready = ::poll(&wait, 1, most);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0)
      throw Unavailable(fmt::format("standard input: nothing came for {} ms (BRAID_IO_DEADLINE)", most));
    const ssize_t got = ::read(STDIN_FILENO, out.data(), out.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Unavailable(fmt::format("standard input: {}", std::strerror(errno)));
    return static_cast<std::size_t>(got);
  }
}

class PipeSource : public ByteSource {
 public:
  std::size_t read(std::span<char> out) override {
    PipeState& state = pipe_state();
    std::size_t filled = 0;
    while (filled < out.size()) {
      const std::span<char> rest = out.subspan(filled);
      if (at_ < state.first.size()) {
        const std::size_t count = std::min(rest.size(), state.first.size() - at_);
        std::copy_n(state.first.begin() + static_cast<std::ptrdiff_t>(at_), count, rest.begin());
        at_ += count;
        filled += count;
        continue;
      }
      const std::size_t got = read_pipe(rest);
      if (got == 0) break;
      if (!state.passed && state.first.size() + got <= kRepeated) {
        state.first.insert(state.first.end(), rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(got));
        at_ += got;
      } else {
        state.passed = true;
      }
      filled += got;
    }
    return filled;
  }
  Compression compression() const override { return Compression::None; }
  std::uint64_t bytes_left_at_most() const override { return std::numeric_limits<std::uint64_t>::max(); }

 private:
  std::size_t at_ = 0;  // of the bytes that are kept
};

}  // namespace

std::unique_ptr<ByteSource> open_standard_input() {
  if (pipe_state().passed)
    throw InvalidArgument("standard input ('-') is read once, and it was read already; put it into a file");
  return std::make_unique<PipeSource>();
}

}  // namespace braid
