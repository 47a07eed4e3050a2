#include "launch/rank_variables.h"

#include <fmt/core.h>

#include "base/error.h"

namespace braid::launch {

std::optional<RankInfo> read_family(const RankFamily& family, const Environment& environment) {
  const std::optional<int> rank = int_variable(environment, family.rank, 0);
  const std::optional<int> size = int_variable(environment, family.size, 1);
  if (!rank && !size) return std::nullopt;
  if (!rank || !size)
    throw InvalidArgument(fmt::format("[launch] {}: {} is set but {} is not", family.launcher,
                                      rank ? family.rank : family.size, rank ? family.size : family.rank));
  if (*rank >= *size)
    throw InvalidArgument(fmt::format("[launch] {}: {}={} is not below {}={}", family.launcher, family.rank,
                                      *rank, family.size, *size));
  RankInfo info;
  info.rank = *rank;
  info.size = *size;
  info.local_rank = int_variable(environment, family.local_rank, 0).value_or(0);
  info.local_size = int_variable(environment, family.local_size, 1).value_or(info.local_rank + 1);
  info.source = fmt::format("{}: {}={} of {}", family.launcher, family.rank, *rank, *size);
  return info;
}

}  // namespace braid::launch
