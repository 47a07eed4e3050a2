// Counts calls of operator new in this binary, on all threads.
#pragma once

#include <cstdint>

namespace braid::testing {
std::uint64_t allocations();
}
