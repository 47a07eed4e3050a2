// What this process may use of the machine's memory. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace braid {

/// Bytes: the machine's memory, or the limit of this process's control group, or of one that it is in, when
/// that is less (a container's memory limit, systemd's MemoryMax; cgroup v2, else v1). Read anew at each
/// call.
std::uint64_t usable_memory();

/// The least limit of these groups and of all that they are in; UINT64_MAX: none. `groups`: as
/// /proc/self/cgroup says them. `root`: where control groups are mounted, /sys/fs/cgroup.
std::uint64_t memory_limit(std::string_view groups, const std::filesystem::path& root);

}  // namespace braid
