#include "comm/rendezvous/rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace braid::comm {

void Rendezvous::set_text(const std::string& key, const std::string& value, const WaitContext& wait) {
  set(key, std::as_bytes(std::span(value)), wait);
}

std::string Rendezvous::get_text(const std::string& key, const WaitContext& wait) {
  auto value = get(key, wait);
  return {reinterpret_cast<const char*>(value.data()), value.size()};
}

std::string rank_list(const std::vector<int>& ranks) {
  std::vector<std::string> runs;
  for (std::size_t i = 0; i < ranks.size();) {
    auto last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last - i >= 2) {
      runs.push_back(fmt::format("{} to {}", ranks[i], ranks[last]));
      i = last + 1;
    } else {
      runs.push_back(std::to_string(ranks[i++]));
    }
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (i > 0) text += i + 1 == runs.size() ? " and " : ", ";
    text += runs[i];
  }
  return text;
}

std::string describe_laggard(const std::vector<RankProgress>& progress) {
  if (progress.empty()) return {};
  auto by_distance = [](const RankProgress& a, const RankProgress& b) {
    return std::tie(a.step, a.collectives) < std::tie(b.step, b.collectives);
  };
  auto [last, first] = std::minmax_element(progress.begin(), progress.end(), by_distance);
  if (!by_distance(*last, *first)) return {};
  return fmt::format(
      "rank {} is behind: step {}, {} collectives, last {}; rank {}: step {}, {} collectives, last {}",
      last->rank, last->step, last->collectives, last->last_collective, first->rank, first->step,
      first->collectives, first->last_collective);
}

}  // namespace braid::comm
