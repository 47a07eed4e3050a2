// What this process may use of the machine's processors. Thread rule: pure functions.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace braid {

/// Cores that the scheduler may give this process: its affinity mask, and the quota of its control group, or
/// of one that it is in, when that is less (a container's CPU limit, systemd's CPUQuota; rounded up). Never
/// less than 1. Read anew at each call.
int usable_cores();

/// CPUs: the least quota of these groups and of all that they are in; infinity: none. `groups`: as
/// /proc/self/cgroup says them. `root`: where control groups are mounted, /sys/fs/cgroup.
double cpu_quota(std::string_view groups, const std::filesystem::path& root);

/// The processor's name as the system tells it, for reports; "unknown processor" when it does not.
std::string cpu_name();

/// Tells the core that a spin loop waits.
inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace braid
