#include "ps/server/late_workers.h"

#include <algorithm>
#include <iterator>

namespace braid::ps {

std::uint64_t LateWorkers::round_to_pull(int worker, std::uint64_t step) const {
  const auto& rounds = at(worker).rounds;
  const auto next = rounds.lower_bound(step);
  if (next == rounds.begin()) return step;
  return std::max(step, std::prev(next)->second + 1);
}

void LateWorkers::served(int worker, std::uint64_t step, std::uint64_t round) {
  Worker& its = workers_[static_cast<std::size_t>(worker)];
  its.rounds.try_emplace(step, round);
  if (its.rounds.size() > kSteps) its.rounds.erase(its.rounds.begin());
  if (!its.closed || round > *its.closed) its.away = false;
}

std::uint64_t LateWorkers::round_of(int worker, std::uint64_t step) const {
  const auto found = at(worker).rounds.find(step);
  return found == at(worker).rounds.end() ? step : found->second;
}

void LateWorkers::left_out(int worker, std::uint64_t round) {
  Worker& its = workers_[static_cast<std::size_t>(worker)];
  its.closed = std::max(its.closed.value_or(round), round);
  its.away = true;
}

}  // namespace braid::ps
