#include "engine/input/schema/row_work.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <queue>
#include <utility>

#include "engine/input/schema/table.h"

namespace braid {

std::vector<int> deal_rows(std::span<const std::uint64_t> work, int world) {
  std::vector<std::size_t> order(work.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return work[a] > work[b]; });
  using Load = std::pair<std::uint64_t, int>;  // of a worker that has room
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  std::vector<std::int64_t> room(static_cast<std::size_t>(world));
  for (int worker = 0; worker < world; ++worker) {
    room[static_cast<std::size_t>(worker)] =
        row_part(static_cast<std::int64_t>(work.size()), worker, world).rows;
    if (room[static_cast<std::size_t>(worker)] > 0) loads.emplace(0, worker);
  }
  std::vector<int> workers(work.size());
  for (const std::size_t row : order) {
    const auto [load, worker] = loads.top();
    loads.pop();
    workers[row] = worker;
    if (--room[static_cast<std::size_t>(worker)] > 0) loads.emplace(load + work[row], worker);
  }
  return workers;
}

}  // namespace braid
