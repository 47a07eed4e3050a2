#include "engine/ir/topology.h"

#include <algorithm>
#include <functional>
#include <queue>

namespace braid {

namespace {

using Predecessors = FunctionRef<void(std::int32_t, FunctionRef<void(std::int32_t)>)>;

// Walks backwards among the open ones, each of which has an open predecessor, until one comes twice.
std::vector<std::int32_t> find_cycle(const std::vector<char>& done, Predecessors predecessors) {
  std::vector<char> seen(done.size());
  std::vector<std::int32_t> path;
  auto at = static_cast<std::int32_t>(std::find(done.begin(), done.end(), 0) - done.begin());
  while (!seen[static_cast<std::size_t>(at)]) {
    seen[static_cast<std::size_t>(at)] = 1;
    path.push_back(at);
    std::int32_t open = -1;
    predecessors(at, [&](std::int32_t before) {
      if (open < 0 && !done[static_cast<std::size_t>(before)]) open = before;
    });
    at = open;
  }
  path.erase(path.begin(), std::find(path.begin(), path.end(), at));
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace

TopologicalOrder sort_topologically(std::int32_t count, Predecessors predecessors) {
  const auto n = static_cast<std::size_t>(count);
  std::vector<std::int32_t> missing(n);
  std::vector<std::vector<std::int32_t>> successors(n);
  std::priority_queue<std::int32_t, std::vector<std::int32_t>, std::greater<>> ready;
  for (std::int32_t i = 0; i < count; ++i) {
    predecessors(i, [&](std::int32_t before) {
      ++missing[static_cast<std::size_t>(i)];
      successors[static_cast<std::size_t>(before)].push_back(i);
    });
    if (missing[static_cast<std::size_t>(i)] == 0) ready.push(i);
  }

  TopologicalOrder result;
  result.order.reserve(n);
  std::vector<char> done(n);
  while (!ready.empty()) {
    const std::int32_t next = ready.top();
    ready.pop();
    result.order.push_back(next);
    done[static_cast<std::size_t>(next)] = 1;
    for (const std::int32_t successor : successors[static_cast<std::size_t>(next)]) {
      if (--missing[static_cast<std::size_t>(successor)] == 0) ready.push(successor);
    }
  }
  if (result.order.size() != n) result.cycle = find_cycle(done, predecessors);
  return result;
}

}  // namespace braid
