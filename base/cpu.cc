#include "base/cpu.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <thread>

#include "base/control_group.h"

namespace braid {
namespace {

int cores_by_affinity() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());  // the mask does not fit into a cpu_set_t
}

/// CPUs: of "quota period" in microseconds, or "max period", and of two files of version 1, where -1 limits
/// nothing (Linux, admin-guide/cgroup-v2.rst, scheduler/sched-bwc.rst).
double quota_of(const ControlGroup& group) {
  double quota = 0, period = 0;
  if (group.version == 2) {
    std::ifstream(group.directory / "cpu.max") >> quota >> period;
  } else {
    std::ifstream(group.directory / "cpu.cfs_quota_us") >> quota;
    std::ifstream(group.directory / "cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? quota / period : std::numeric_limits<double>::infinity();
}

}  // namespace

double cpu_quota(std::string_view groups, const std::filesystem::path& root) {
  double least = std::numeric_limits<double>::infinity();
  for (const ControlGroup& group : control_groups(groups, root, "cpu"))
    least = std::min(least, quota_of(group));
  return least;
}

int usable_cores() {
  const int cores = cores_by_affinity();
  const double quota = std::ceil(cpu_quota(own_control_groups(), "/sys/fs/cgroup"));
  return quota < cores ? std::max(1, static_cast<int>(quota)) : std::max(1, cores);
}

std::string cpu_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (const auto colon = line.find(": "); line.starts_with("model name") && colon != std::string::npos)
      return line.substr(colon + 2);
  return "unknown processor";
}

}  // namespace braid
