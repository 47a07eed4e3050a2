#include "engine/ops/state/initial_rows.h"

#include <algorithm>

namespace braid {
namespace {

constexpr std::int64_t kGrain = std::int64_t{1} << 18;  // elements that a thread makes at a time

}  // namespace

void fill_initial_rows(const InitialRows& from, std::span<float> out, ThreadPool& pool) {
  const auto part = [&](std::int64_t begin, std::int64_t count) {
    return out.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
  };
  if (from.is_whole())
    return pool.parallel_range(from.elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      fill_initial(from.spec, from.key, from.first_of(0) + static_cast<std::uint64_t>(begin),
                   part(begin, end - begin));
    });
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, from.width));
  pool.parallel_range(from.rows, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      fill_initial(from.spec, from.key, from.first_of(r), part(r * from.width, from.width));
  });
}

}  // namespace braid
