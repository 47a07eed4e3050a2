// The order in which a shuffled epoch takes the rows of a table, a pure function of its key. Thread rule: any
// thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/init.h"

namespace braid {

/// All numbers below `rows`, once each, in a random order. `buffer`: rows among which the next one is drawn,
/// as from a buffer that the next row of the file fills up; 0, or as many as there are rows: any order is as
/// likely.
std::vector<std::int64_t> shuffled_rows(std::int64_t rows, RngKey key, std::int64_t buffer);

}  // namespace braid
