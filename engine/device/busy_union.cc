#include "engine/device/busy_union.h"

#include <algorithm>

namespace braid {

std::uint64_t BusyUnion::units(Time now) const noexcept {
  const auto since = std::max(std::chrono::nanoseconds(0), std::chrono::nanoseconds(now - made_));
  return static_cast<std::uint64_t>(since.count()) >> kUnitBits << kCountBits;
}

void BusyUnion::enter(Time now) noexcept {
  const std::uint64_t at = units(now);
  std::uint64_t word = word_.load(std::memory_order_relaxed);
  while (!word_.compare_exchange_weak(word, (word & kCount) == 0 ? word - at + 1 : word + 1,
                                      std::memory_order_relaxed)) {
  }
}

void BusyUnion::leave(Time now) noexcept {
  const std::uint64_t at = units(now);
  std::uint64_t word = word_.load(std::memory_order_relaxed);
  while (!word_.compare_exchange_weak(word, (word & kCount) == 1 ? word + at - 1 : word - 1,
                                      std::memory_order_relaxed)) {
  }
}

std::chrono::nanoseconds BusyUnion::total(Time now) const noexcept {
  std::uint64_t word = word_.load(std::memory_order_relaxed);
  if ((word & kCount) != 0) word += units(now);
  // Negative by a little when another thread's enter() had a later time than `now`.
  const std::int64_t sum = static_cast<std::int64_t>(word) >> kCountBits;
  return std::chrono::nanoseconds(std::max<std::int64_t>(sum, 0) * (std::int64_t{1} << kUnitBits));
}

}  // namespace braid
