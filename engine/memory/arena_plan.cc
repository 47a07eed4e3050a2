#include "engine/memory/arena_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace braid {

ArenaPlan plan_arena(std::span<const std::uint64_t> sizes, const BitMatrix& may_share) {
  std::vector<std::uint32_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return sizes[a] > sizes[b]; });

  struct Placed {
    std::uint64_t begin, end;
    std::uint32_t item;
  };
  std::vector<Placed> placed;  // by begin
  placed.reserve(sizes.size());
  ArenaPlan plan;
  plan.offsets.assign(sizes.size(), 0);
  for (const std::uint32_t item : order) {
    const std::uint64_t size = align_up(sizes[item]);
    if (size == 0) continue;
    const std::uint64_t* shares = may_share.row(item);
    std::uint64_t free_from = 0, best = 0, best_gap = std::numeric_limits<std::uint64_t>::max();
    for (const Placed& other : placed) {
      if ((shares[other.item / 64] >> (other.item % 64)) & 1) continue;
      if (other.begin > free_from) {
        const std::uint64_t gap = other.begin - free_from;
        if (gap >= size && gap < best_gap) {
          best_gap = gap;
          best = free_from;
        }
      }
      free_from = std::max(free_from, other.end);
    }
    if (best_gap == std::numeric_limits<std::uint64_t>::max()) best = free_from;
    plan.offsets[item] = best;
    plan.bytes = std::max(plan.bytes, best + size);
    const Placed here{best, best + size, item};
    placed.insert(std::upper_bound(placed.begin(), placed.end(), here,
                                   [](const Placed& a, const Placed& b) { return a.begin < b.begin; }),
                  here);
  }
  return plan;
}

}  // namespace braid
