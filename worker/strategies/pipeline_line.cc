#include "worker/strategies/pipeline_line.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace braid::worker {

void LineOfNodes::add_value(ValueRef value, std::size_t made, std::size_t read, double bytes) {
  const auto [known, fresh] = values_.try_emplace(value, Value{made, read, bytes});
  if (!fresh) known->second.read = std::max(known->second.read, read);
}

void LineOfNodes::keep_together(std::size_t one, std::size_t other) {
  const auto [first, last] = std::minmax(one, other);
  ++keep_[first + 1];
  --keep_[last + 1];
}

std::vector<std::size_t> LineOfNodes::cut(int stages, double bytes_per_us) const {
  const std::size_t n = costs_.size();
  std::vector<double> differences(n + 2), sent(n + 1), before(n + 1);
  for (const auto& [ref, value] : values_) {
    differences[value.made + 1] += value.bytes;
    differences[value.read + 1] -= value.bytes;
  }
  std::vector<std::size_t> places{0};
  double bytes = 0;
  int kept = 0;
  for (std::size_t i = 0; i < n; ++i) {
    bytes += differences[i];
    kept += keep_[i];
    before[i + 1] = before[i] + costs_[i];
    if (i == 0) continue;
    sent[i] = bytes / bytes_per_us;
    if (kept == 0) places.push_back(i);
  }
  places.push_back(n);
  sent[n] = 0;
  const std::size_t ends = places.size();
  if (ends < static_cast<std::size_t>(stages) + 1) return {};

  using Best = std::pair<double, double>;  // the longest stage, the sum of squares of all
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<std::vector<Best>> best(static_cast<std::size_t>(stages) + 1,
                                      std::vector<Best>(ends, Best{kNever, kNever}));
  std::vector<std::vector<std::size_t>> from(static_cast<std::size_t>(stages) + 1,
                                             std::vector<std::size_t>(ends));
  best[0][0] = {0, 0};
  for (std::size_t s = 1; s <= static_cast<std::size_t>(stages); ++s)
    for (std::size_t e = s; e < ends; ++e)
      for (std::size_t b = s - 1; b < e; ++b) {
        if (best[s - 1][b].first == kNever) continue;
        const double own = before[places[e]] - before[places[b]] + sent[places[b]] + sent[places[e]];
        const Best found{std::max(best[s - 1][b].first, own), best[s - 1][b].second + own * own};
        if (found < best[s][e]) {
          best[s][e] = found;
          from[s][e] = b;
        }
      }
  std::vector<std::size_t> cuts;
  std::size_t e = ends - 1;
  for (auto s = static_cast<std::size_t>(stages); s > 0; e = from[s--][e]) cuts.push_back(places[e]);
  std::ranges::reverse(cuts);
  return cuts;
}

}  // namespace braid::worker
