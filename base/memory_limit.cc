#include "base/memory_limit.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace braid {
namespace {

std::uint64_t physical_memory() {
  return static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

/// A file that is not there, or says "max", limits nothing.
std::uint64_t limit_of(const char* file, std::uint64_t otherwise) {
  std::ifstream in(file);
  std::uint64_t bytes = 0;
  return in >> bytes && bytes > 0 ? std::min(bytes, otherwise) : otherwise;
}

}  // namespace

std::uint64_t usable_memory() {
  // Inside of a container its own group is the root of what it sees (Linux, admin-guide/cgroup-v2.rst,
  // cgroup-v1/memory.rst).
  const std::uint64_t all = physical_memory();
  return std::min(limit_of("/sys/fs/cgroup/memory.max", all),
                  limit_of("/sys/fs/cgroup/memory/memory.limit_in_bytes", all));
}

}  // namespace braid
