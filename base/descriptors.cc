#include "base/descriptors.h"

#include <sys/resource.h>

#include <algorithm>

namespace braid {
namespace {

constexpr rlim_t kMostWanted = 65536;
constexpr rlim_t kKept = 256;  // or a quarter of the limit, where that is less

}  // namespace

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min(limit.rlim_max, kMostWanted);
  if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  ::setrlimit(RLIMIT_NOFILE, &limit);  // refused: it stays as it was
}

bool leaves_descriptors(int descriptor) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return true;
  return static_cast<rlim_t>(descriptor) < limit.rlim_cur - std::min(kKept, limit.rlim_cur / 4);
}

}  // namespace braid
