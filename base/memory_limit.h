// What this process may use of the machine's memory. Thread rule: pure functions.
#pragma once

#include <cstdint>

namespace braid {

/// Bytes: the machine's memory, or the limit of this process's control group when that is less (a container's
/// memory limit; cgroup v2, else v1). Read anew at each call.
std::uint64_t usable_memory();

}  // namespace braid
