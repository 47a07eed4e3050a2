#include "base/memory_limit.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/control_group.h"

namespace braid {
namespace {

std::uint64_t physical_memory() {
  return static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

/// A file that is not there, or says "max", limits nothing.
std::uint64_t limit_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::uint64_t bytes = 0;
  return in >> bytes && bytes > 0 ? bytes : UINT64_MAX;
}

}  // namespace

std::uint64_t memory_limit(std::string_view groups, const std::filesystem::path& root) {
  std::uint64_t least = UINT64_MAX;
  for (const ControlGroup& group : control_groups(groups, root, "memory"))
    least = std::min(
        least, limit_of(group.directory / (group.version == 2 ? "memory.max" : "memory.limit_in_bytes")));
  return least;
}

std::uint64_t usable_memory() {
  return std::min(physical_memory(), memory_limit(own_control_groups(), "/sys/fs/cgroup"));
}

}  // namespace braid
