#include "base/memory_limit.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

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

/// Of the group at `path` and of those that it is in. Inside of a container its own group is the root of what
/// it sees, whatever path it is told (Linux, admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst).
std::uint64_t least_limit(const std::filesystem::path& root, std::filesystem::path path, const char* file) {
  std::uint64_t least = limit_of(root / file);
  for (path = path.relative_path(); !path.empty(); path = path.parent_path())
    least = std::min(least, limit_of(root / path / file));
  return least;
}

}  // namespace

std::uint64_t memory_limit(std::string_view groups, const std::filesystem::path& root) {
  std::uint64_t least =
      std::min(limit_of(root / "memory.max"), limit_of(root / "memory/memory.limit_in_bytes"));
  while (!groups.empty()) {
    const std::string_view line = groups.substr(0, groups.find('\n'));
    groups.remove_prefix(std::min(groups.size(), line.size() + 1));
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const std::string controllers = "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
    const std::filesystem::path path(line.substr(second + 1));
    if (controllers == ",,")
      least = std::min(least, least_limit(root, path, "memory.max"));
    else if (controllers.find(",memory,") != std::string::npos)
      least = std::min(least, least_limit(root / "memory", path, "memory.limit_in_bytes"));
  }
  return least;
}

std::uint64_t usable_memory() {
  std::ifstream in("/proc/self/cgroup");
  const std::string groups{std::istreambuf_iterator<char>(in), {}};
  return std::min(physical_memory(), memory_limit(groups, "/sys/fs/cgroup"));
}

}  // namespace braid
