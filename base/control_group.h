// The control groups of Linux that limit this process: a container's, a unit's of systemd, in both versions.
// Thread rule: pure functions.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace braid {

struct ControlGroup {
  std::filesystem::path directory;  // with the files of its controller
  int version = 2;
};

/// What /proc/self/cgroup says.
std::string own_control_groups();

/// Of these groups, and of all that they are in, those with `controller` ("memory", "cpu"); some may not be
/// there. `groups`: as /proc/self/cgroup says them. `root`: where control groups are mounted, /sys/fs/cgroup.
/// Inside of a container its own group is the root of what it sees, whatever path it is told (Linux,
/// admin-guide/cgroup-v2.rst, cgroup-v1/).
std::vector<ControlGroup> control_groups(std::string_view groups, const std::filesystem::path& root,
                                         std::string_view controller);

}  // namespace braid
