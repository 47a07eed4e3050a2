// SSP's clocks: of each table, how many steps of each worker it has. A push is applied when it arrives; a
// worker that pulls for step t waits until the slowest has pushed all steps below t - s (Ho et al. 2013). Of
// a worker that has left nobody waits. Thread rule: one thread at a time (the core's lock).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "ps/server/table_id.h"

namespace braid::ps {

class StepClocks {
 public:
  using WaitedFor = std::function<bool(int)>;

  /// Every worker's steps below `first` are in all tables.
  StepClocks(std::size_t tables, int workers, std::uint64_t first)
      : first_(first),
        clocks_(tables, std::vector<std::uint64_t>(static_cast<std::size_t>(workers), first)) {}

  void pushed(TableId table, int worker, std::uint64_t step) {
    std::uint64_t& clock = clocks_[index_of(table)][static_cast<std::size_t>(worker)];
    clock = std::max(clock, step + 1);
  }
  /// Steps that the table has of every worker that is waited for; of all workers where none is.
  std::uint64_t slowest(TableId table, const WaitedFor& waited_for) const {
    const auto& of_workers = clocks_[index_of(table)];
    std::uint64_t least = ~std::uint64_t{0}, most = first_;
    for (std::size_t w = 0; w < of_workers.size(); ++w) {
      most = std::max(most, of_workers[w]);
      if (waited_for(static_cast<int>(w))) least = std::min(least, of_workers[w]);
    }
    return std::min(least, most);
  }
  /// The same of all tables.
  std::uint64_t slowest(const WaitedFor& waited_for) const {
    std::uint64_t least = clocks_.empty() ? first_ : ~std::uint64_t{0};
    for (std::size_t t = 0; t < clocks_.size(); ++t)
      least = std::min(least, slowest(static_cast<TableId>(t), waited_for));
    return least;
  }
  /// Workers that are waited for whose step `step` - 1 is not in the table.
  std::vector<int> behind(TableId table, std::uint64_t step, const WaitedFor& waited_for) const {
    std::vector<int> workers;
    const auto& of_workers = clocks_[index_of(table)];
    for (std::size_t w = 0; w < of_workers.size(); ++w)
      if (of_workers[w] < step && waited_for(static_cast<int>(w))) workers.push_back(static_cast<int>(w));
    return workers;
  }

 private:
  std::uint64_t first_;
  std::vector<std::vector<std::uint64_t>> clocks_;  // [table][worker]
};

}  // namespace braid::ps
