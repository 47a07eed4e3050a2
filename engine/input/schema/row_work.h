// Which rows of a batch a worker takes, where rows make different amounts of work: those of ragged columns.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace braid {

/// What a model computes for a row, in units of its own: `of_value` for each value of its ragged columns, and
/// `of_pair` for each pair of values of the longest one, as attention has it. Integers below 2^20, so that
/// all workers come to the same sums.
struct RowWork {
  std::int64_t of_value = 1;
  std::int64_t of_pair = 0;
};

/// For each row its worker. As many rows each as row_part() gives, and about as much work: from the row with
/// the most work to that with the least, each goes to the worker that has the least so far, of those with
/// room; of equal ones to the first. `work`: of each row, below 2^48.
std::vector<int> deal_rows(std::span<const std::uint64_t> work, int world);

}  // namespace braid
