#include "ps/client/ahead_choice.h"

#include <utility>

namespace braid::ps {

bool AheadChoice::next(std::uint64_t rows, std::uint64_t repaired) {
  const std::lock_guard lock(mutex_);
  if (rest_ > 0) {
    --rest_;
    return false;
  }
  if (looked_ == kLook) {
    const std::uint64_t its_rows = rows - std::exchange(rows_, rows);
    const std::uint64_t its_repaired = repaired - std::exchange(repaired_, repaired);
    looked_ = 0;
    if (its_repaired * kVainOf > its_rows * kVain) {
      rest_ = kRest - 1;
      return false;
    }
  }
  ++looked_;
  return true;
}

}  // namespace braid::ps
