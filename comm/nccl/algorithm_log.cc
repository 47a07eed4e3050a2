// NCCL says which algorithm it takes in its debug text alone. It is let to write that text into a pipe, from
// which a thread takes the lines about algorithms and the warnings, and leaves the rest.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "base/env.h"
#include "base/log.h"
#include "comm/nccl/nccl_communicator.h"

namespace braid::comm {
namespace {

constexpr std::string_view kMark = " Bytes -> Algo ";
constexpr std::string_view kWarning = "NCCL WARN ";
constexpr std::size_t kKinds = 256;  // lines that are told apart, so that the set stays small

/// "AllReduce: 1048576 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23}"; the part up to the channels.
std::string choice_in(std::string_view line) {
  const std::size_t mark = line.find(kMark);
  if (mark == std::string_view::npos) return {};
  const std::size_t colon = line.rfind(':', mark);
  if (colon == std::string_view::npos) return {};
  const std::size_t begin = line.rfind(' ', colon) + 1;
  const std::size_t end = line.find(" channel", mark);
  return std::string(line.substr(begin, end == std::string_view::npos ? end : end - begin));
}

void read_lines(int fd) {
  std::set<std::string> told;
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t n = 0; (n = read(fd, buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<std::size_t>(n));
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const std::string_view line = std::string_view(text).substr(begin, end - begin);
      const std::string choice = choice_in(line);
      if (const std::size_t warning = line.find(kWarning); warning != std::string_view::npos)
        log_warning("[nccl] {}", line.substr(warning + kWarning.size()));
      if (!choice.empty() && told.size() < kKinds && told.insert(choice).second)
        log_info("[nccl] {}", choice);
    }
    text.erase(0, begin);
  }
}

}  // namespace

void log_nccl_algorithms() {
  if (env_string("NCCL_DEBUG") || env_string("NCCL_DEBUG_FILE")) return;
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return;
  setenv("NCCL_DEBUG", "INFO", 1);
  setenv("NCCL_DEBUG_SUBSYS", "TUNING", 1);
  setenv("NCCL_DEBUG_FILE", ("/proc/self/fd/" + std::to_string(ends[1])).c_str(), 1);
  // Both ends stay open for the life of the process, in which NCCL may write at any time.
  std::thread(read_lines, ends[0]).detach();
}

}  // namespace braid::comm
