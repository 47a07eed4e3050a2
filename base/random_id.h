// Numbers that tell things apart which have no name: processes, runs, lives of a server.
#pragma once

#include <cstdint>

namespace braid {

/// From the system's source of randomness; never 0. Thread rule: any thread.
std::uint64_t random_id();

}  // namespace braid
