#include "engine/ops/common/index_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/error.h"
#include "engine/ops/common/dispatch.h"

namespace braid {

template <class I>
void check_indices(const std::string& place, const I* indices, std::int64_t n, std::int64_t bound) {
  for (std::int64_t k = 0; k < n; ++k)
    if (indices[k] < 0 || static_cast<std::int64_t>(indices[k]) >= bound)
      throw InvalidArgument(
          fmt::format("{}: indices[{}] = {} is not in [0, {})", place, k, indices[k], bound));
}

template void check_indices(const std::string&, const std::int32_t*, std::int64_t, std::int64_t);
template void check_indices(const std::string&, const std::int64_t*, std::int64_t, std::int64_t);

template <class I>
void check_segment_ids(const std::string& place, const I* ids, std::int64_t n, std::int64_t bound) {
  for (std::int64_t k = 0; k < n; ++k)
    if (static_cast<std::int64_t>(ids[k]) >= bound)
      throw InvalidArgument(fmt::format("{}: segment_ids[{}] = {} is not below {}", place, k, ids[k], bound));
}

template void check_segment_ids(const std::string&, const std::int32_t*, std::int64_t, std::int64_t);
template void check_segment_ids(const std::string&, const std::int64_t*, std::int64_t, std::int64_t);

std::size_t IndexGroups::scratch_bytes(std::int64_t n) {
  return static_cast<std::size_t>(n) * 2 * sizeof(std::uint64_t) +
         static_cast<std::size_t>(n + 1) * sizeof(std::uint32_t);
}

template <class I>
IndexGroups::IndexGroups(const I* indices, std::int64_t n, std::int64_t bound, void* scratch)
    : keys_(static_cast<std::uint64_t*>(scratch)), starts_(reinterpret_cast<std::uint32_t*>(keys_ + 2 * n)) {
  std::int64_t entries = 0;
  for (std::int64_t k = 0; k < n; ++k)
    if (indices[k] >= 0)
      keys_[entries++] =
          static_cast<std::uint64_t>(indices[k]) << kPositionBits | static_cast<std::uint64_t>(k);
  sort(keys_ + n, entries, bound);
  find_starts(entries);
}

template IndexGroups::IndexGroups(const std::int32_t*, std::int64_t, std::int64_t, void*);
template IndexGroups::IndexGroups(const std::int64_t*, std::int64_t, std::int64_t, void*);

IndexGroups::IndexGroups(std::int64_t n, void* scratch)
    : keys_(static_cast<std::uint64_t*>(scratch)), starts_(reinterpret_cast<std::uint32_t*>(keys_ + 2 * n)) {
  find_starts(n);
}

IndexGroups IndexGroups::checked(const std::string& place, DType dtype, const void* indices, std::int64_t n,
                                 std::int64_t bound, void* scratch) {
  return with_index(place, dtype, [&]<class I>() {
    check_indices(place, static_cast<const I*>(indices), n, bound);
    return IndexGroups(static_cast<const I*>(indices), n, bound, scratch);
  });
}

/// By index only: positions are in order already and every pass is stable.
void IndexGroups::sort(std::uint64_t* spare, std::int64_t entries, std::int64_t bound) {
  constexpr int kDigitBits = 8;
  const int index_bits = bound <= 1 ? 0 : std::bit_width(static_cast<std::uint64_t>(bound - 1));
  std::uint64_t* from = keys_;
  std::uint64_t* to = spare;
  for (int shift = kPositionBits; shift < kPositionBits + index_bits; shift += kDigitBits) {
    const auto digit = [shift](std::uint64_t key) { return key >> shift & ((1U << kDigitBits) - 1); };
    std::array<std::int64_t, 1U << kDigitBits> next{};
    for (std::int64_t k = 0; k < entries; ++k) ++next[digit(from[k])];
    std::int64_t sum = 0;
    for (std::int64_t& count : next) sum += std::exchange(count, sum);
    for (std::int64_t k = 0; k < entries; ++k) to[next[digit(from[k])]++] = from[k];
    std::swap(from, to);
  }
  keys_ = from;
}

void IndexGroups::find_starts(std::int64_t entries) {
  for (std::int64_t k = 0; k < entries; ++k)
    if (k == 0 || keys_[k] >> kPositionBits != keys_[k - 1] >> kPositionBits)
      starts_[size_++] = static_cast<std::uint32_t>(k);
  starts_[size_] = static_cast<std::uint32_t>(entries);
}

}  // namespace braid
