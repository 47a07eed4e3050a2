// Which keys a query of dense attention sees: all, or with `causal` those up to its own place and `offset`
// more; and what a mask does to scores: it is added, or where it is false scores become `hidden`. The second
// mask of attention_head.h; ragged_mask.h has the first. Thread rule: values.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/ops/ragged/ragged_mask.h"

namespace braid::attention {

template <class Int>
struct DenseRulesOf {
  using Range = KeyRangeOf<Int>;

  Int count = 0, history = 0;  // queries, keys
  bool causal = false;
  Int offset = 0;

  constexpr Int queries() const { return count; }
  constexpr Int all_keys() const { return history; }
  constexpr Range keys(Int i) const {
    const Int to = i + offset + 1;
    return {0, !causal || to > history ? history : to < 0 ? 0 : to, false};
  }
  constexpr bool sees(Int i, Int j) const { return j < keys(i).to; }
  /// What queries [begin, end) see together. REQUIRES: begin < end.
  constexpr Range span(Int, Int end) const { return keys(end - 1); }
  constexpr bool any(Int, Int end, Int from, Int) const { return from < keys(end - 1).to; }
  constexpr bool all(Int begin, Int, Int, Int to) const { return to <= keys(begin).to; }
};

template <class T>
struct DenseMask : DenseRulesOf<std::int64_t> {
  const T* added = nullptr;  // one of both, or none
  const bool* seen = nullptr;
  std::int64_t query_step = 0, key_step = 0;
  T hidden = 0;
};

/// Of keys [begin, begin + count); `scores` begins with `begin`.
template <class T>
void put_mask(const DenseMask<T>& mask, std::int64_t i, std::int64_t begin, std::int64_t count, T* scores) {
  const std::int64_t first = i * mask.query_step + begin * mask.key_step;
  if (mask.added) {
    const T* const added = mask.added + first;
    for (std::int64_t j = 0; j < count; ++j) scores[j] += added[j * mask.key_step];
  } else if (mask.seen) {
    const bool* const seen = mask.seen + first;
    for (std::int64_t j = 0; j < count; ++j) scores[j] = seen[j * mask.key_step] ? scores[j] : mask.hidden;
  }
}

/// Gradients of scores that the mask has put others in the place of become zeros.
template <class T>
void drop_hidden(const DenseMask<T>& mask, std::int64_t i, std::int64_t begin, std::int64_t count,
                 T* slopes) {
  if (!mask.seen) return;
  const bool* const seen = mask.seen + i * mask.query_step + begin * mask.key_step;
  for (std::int64_t j = 0; j < count; ++j) slopes[j] = seen[j * mask.key_step] ? slopes[j] : T(0);
}

}  // namespace braid::attention
