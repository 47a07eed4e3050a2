// Division of 32-bit positions by a number that is known at launch: a multiplication instead of the many
// instructions of a division. Source: Granlund and Montgomery, "Division by invariant integers using
// multiplication", 1994.
#pragma once

#include <cstdint>

namespace braid::cuda {

class Divider {
 public:
  Divider() = default;
  /// REQUIRES: divisor <= 2^31. Of 0 it makes 1: nothing is divided then.
  explicit Divider(std::int64_t divisor) : divisor_(divisor < 1 ? 1 : static_cast<std::uint32_t>(divisor)) {
    while ((std::uint64_t{1} << shift_) < divisor_) ++shift_;
    factor_ = static_cast<std::uint32_t>(
        (std::uint64_t{1} << 32) * ((std::uint64_t{1} << shift_) - divisor_) / divisor_ + 1);
  }

  /// REQUIRES: n < 2^31.
  __device__ std::uint32_t quotient(std::uint32_t n) const { return (__umulhi(n, factor_) + n) >> shift_; }
  __device__ std::uint32_t divisor() const { return divisor_; }

 private:
  std::uint32_t divisor_ = 1;
  std::uint32_t factor_ = 1;
  std::uint32_t shift_ = 0;
};

/// Positions below this are divided by a Divider.
inline constexpr std::int64_t kDividerLimit = std::int64_t{1} << 31;

}  // namespace braid::cuda
