// Topological order of anything numbered 0..count-1, with the cycle when there is none. Kahn's algorithm with
// the smallest ready index first, so the order depends on the graph alone: O((n + edges) log n). Thread rule:
// pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"

namespace braid {

struct TopologicalOrder {
  std::vector<std::int32_t> order;  // predecessors first, ties by index; without what is on or behind a cycle
  std::vector<std::int32_t> cycle;  // one cycle, each before its successor; empty when there is none
};

/// `predecessors(i, visit)` calls visit(p) for each predecessor p of i; repeated ones are fine.
TopologicalOrder sort_topologically(
    std::int32_t count, FunctionRef<void(std::int32_t, FunctionRef<void(std::int32_t)>)> predecessors);

}  // namespace braid
