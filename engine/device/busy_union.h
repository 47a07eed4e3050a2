// How long any of several streams was busy: the union of their busy intervals. A stream enters when it
// becomes busy and leaves when it is not; the sum of the streams' own times over this one is their overlap
// factor.
//
// One word holds the number of busy streams and the sum of (time at which the last one left) - (time at which
// the first one came), so entering and leaving are an atomic operation each and take no lock. Its unit, 128
// ns, lets it run for half a year; rounding is the same at both ends of an interval, so it does not add up.
// Thread rule: everything from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace braid {

class BusyUnion {
 public:
  using Time = std::chrono::steady_clock::time_point;

  BusyUnion() : made_(Time::clock::now()) {}
  BusyUnion(const BusyUnion&) = delete;

  void enter(Time now) noexcept;
  /// REQUIRES: as many have entered before.
  void leave(Time now) noexcept;
  /// Includes the interval that still lasts, up to `now`.
  std::chrono::nanoseconds total(Time now) const noexcept;

 private:
  static constexpr int kCountBits = 16;
  static constexpr std::uint64_t kCount = (std::uint64_t{1} << kCountBits) - 1;
  static constexpr int kUnitBits = 7;

  std::uint64_t units(Time now) const noexcept;

  const Time made_;
  std::atomic<std::uint64_t> word_{0};  // the sum above, the number of busy streams below
};

}  // namespace braid
