#include "ps/shard_plan.h"

#include <algorithm>
#include <numeric>

namespace braid::ps {
namespace {

/// Border i of n near-equal parts of [0, total), without overflow for any int64 total.
std::int64_t border(std::int64_t total, int i, int n) {
  return total / n * i + std::min<std::int64_t>(total % n, i);
}

}  // namespace

ShardPlan::ShardPlan(const TableSet& set, int servers)
    : servers_(servers), ranges_(set.dense.size()), loads_(static_cast<std::size_t>(servers)) {
  std::vector<int> small;
  std::int64_t line = 0;
  int shift = 0;  // spreads the remainders of the even cuts over the servers
  for (int table = 0; table < static_cast<int>(set.dense.size()); ++table) {
    const std::int64_t elements = set.dense[static_cast<std::size_t>(table)].elements;
    if (elements / servers < kSplitElements) {
      small.push_back(table);
      line += elements;
      continue;
    }
    for (int part = 0; part < servers; ++part) {
      const std::int64_t begin = border(elements, part, servers);
      add(table, {(part + shift) % servers, begin, border(elements, part + 1, servers) - begin});
    }
    ++shift;
  }
  int server = 0;
  std::int64_t at = 0;
  for (int table : small) {
    const std::int64_t elements = set.dense[static_cast<std::size_t>(table)].elements;
    for (std::int64_t begin = 0; begin < elements;) {
      while (at + begin >= border(line, server + 1, servers)) ++server;
      const std::int64_t end = std::min(elements, border(line, server + 1, servers) - at);
      add(table, {server, begin, end - begin});
      begin = end;
    }
    at += elements;
  }
}

void ShardPlan::add(int table, const DenseRange& range) {
  ranges_[static_cast<std::size_t>(table)].push_back(range);
  loads_[static_cast<std::size_t>(range.server)] += range.count;
}

DenseRange ShardPlan::range(int table, int server) const {
  for (const DenseRange& range : ranges(table))
    if (range.server == server) return range;
  return {server, 0, 0};
}

double ShardPlan::imbalance() const {
  const auto total = std::accumulate(loads_.begin(), loads_.end(), std::int64_t{0});
  if (total == 0) return 1.0;
  const auto largest = *std::max_element(loads_.begin(), loads_.end());
  return static_cast<double>(largest) * servers_ / static_cast<double>(total);
}

}  // namespace braid::ps
