#include "base/cpu.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <thread>

namespace braid {
namespace {

int cores_by_affinity() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());  // the mask does not fit into a cpu_set_t
}

/// "quota period" in microseconds, or "max period" (Linux, Documentation/admin-guide/cgroup-v2.rst).
int cores_by_quota(int otherwise) {
  std::ifstream in("/sys/fs/cgroup/cpu.max");
  double quota = 0, period = 0;
  if (!(in >> quota >> period) || quota <= 0 || period <= 0) return otherwise;
  return static_cast<int>(std::ceil(quota / period));
}

}  // namespace

int usable_cores() {
  const int cores = cores_by_affinity();
  return std::max(1, std::min(cores, cores_by_quota(cores)));
}

std::string cpu_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (const auto colon = line.find(": "); line.starts_with("model name") && colon != std::string::npos)
      return line.substr(colon + 2);
  return "unknown processor";
}

}  // namespace braid
