#include "worker/strategies/compression.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

namespace braid::worker {

void encode_int8(float* x, std::int64_t count, std::int64_t block, std::byte* to) {
  const std::int64_t blocks = (count + block - 1) / block;
  auto* const bytes = reinterpret_cast<std::int8_t*>(to + blocks * static_cast<std::int64_t>(sizeof(float)));
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t begin = b * block, end = std::min(begin + block, count);
    float most = 0;
    bool finite = true;
    for (std::int64_t i = begin; i < end; ++i) {
      most = std::max(most, std::fabs(x[i]));
      finite &= std::fabs(x[i]) <= std::numeric_limits<float>::max();
    }
    const float scale = finite ? most / 127 : std::numeric_limits<float>::quiet_NaN();
    const float inverse = finite && scale > 0 ? 1 / scale : 0;
    std::memcpy(to + b * static_cast<std::int64_t>(sizeof(float)), &scale, sizeof(scale));
    for (std::int64_t i = begin; i < end; ++i) {
      const float q = finite ? std::clamp(std::nearbyint(x[i] * inverse), -127.0F, 127.0F) : 1;
      bytes[i] = static_cast<std::int8_t>(q);
      x[i] -= scale * q;
    }
  }
}

void add_int8(const std::byte* from, std::int64_t count, std::int64_t block, float* to) {
  const std::int64_t blocks = (count + block - 1) / block;
  const auto* const bytes =
      reinterpret_cast<const std::int8_t*>(from + blocks * static_cast<std::int64_t>(sizeof(float)));
  for (std::int64_t b = 0; b < blocks; ++b) {
    float scale = 0;
    std::memcpy(&scale, from + b * static_cast<std::int64_t>(sizeof(float)), sizeof(scale));
    for (std::int64_t i = b * block, end = std::min(i + block, count); i < end; ++i)
      to[i] += scale * static_cast<float>(bytes[i]);
  }
}

void take_largest(float* x, std::int64_t count, std::int64_t k, std::int32_t* order, std::int32_t* places,
                  float* values) {
  // By bits: the larger number has the larger ones, and what is no number the largest.
  const auto size = [&](std::int32_t i) { return std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffU; };
  std::iota(order, order + count, 0);
  const auto before = [&](std::int32_t a, std::int32_t b) {
    return size(a) != size(b) ? size(a) > size(b) : a < b;
  };
  if (k < count) std::nth_element(order, order + k, order + count, before);
  std::sort(order, order + k);
  for (std::int64_t i = 0; i < k; ++i) {
    places[i] = order[i];
    values[i] = x[order[i]];
    x[order[i]] = 0;
  }
}

void orthonormalize(float* p, std::int64_t n, std::int64_t r) {
  constexpr double kNothing = 1e-6;  // of what a column was, in which rounding is all that is left
  for (std::int64_t c = 0; c < r; ++c) {
    const auto product = [&](std::int64_t a, std::int64_t b) {
      double sum = 0;
      for (std::int64_t i = 0; i < n; ++i)
        sum += static_cast<double>(p[i * r + a]) * static_cast<double>(p[i * r + b]);
      return sum;
    };
    const double before = std::sqrt(product(c, c));
    for (std::int64_t d = 0; d < c; ++d) {
      const auto along = static_cast<float>(product(c, d));
      for (std::int64_t i = 0; i < n; ++i) p[i * r + c] -= along * p[i * r + d];
    }
    const double after = std::sqrt(product(c, c));
    const float scale = after > kNothing * before ? static_cast<float>(1 / after)
                        : before == before        ? 0
                                                  : NAN;
    for (std::int64_t i = 0; i < n; ++i) p[i * r + c] *= scale;
  }
}

}  // namespace braid::worker
