// Which keys a query of dense attention sees: all, or with `causal` those up to its own place and `offset`
// more; and what a mask does to scores: it is added, or where it is false scores become `hidden`. The second
// mask of attention_head.h; ragged_mask.h has the first. Thread rule: values.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/ops/common/kernel_util.h"
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
  std::int64_t query_step = 0, key_step = 0;  // key_step: 0 or 1
  T hidden = 0;
};

// What a mask does to `count` scores: as its numbers lie, side by side or one for all.

template <class T>
BRAID_VECTOR_CLONES void add_mask(T* scores, const T* added, std::int64_t step, std::int64_t count) {
  if (step == 1)
    for (std::int64_t j = 0; j < count; ++j) scores[j] += added[j];
  else
    for (std::int64_t j = 0; j < count; ++j) scores[j] += added[0];
}
template <class T>
BRAID_VECTOR_CLONES void choose(T* scores, const bool* seen, std::int64_t step, std::int64_t count, T other) {
  if (step == 1)
    for (std::int64_t j = 0; j < count; ++j) scores[j] = seen[j] ? scores[j] : other;
  else if (!seen[0])
    for (std::int64_t j = 0; j < count; ++j) scores[j] = other;
}

/// Of keys [begin, begin + count); `scores` begins with `begin`.
template <class T>
void put_mask(const DenseMask<T>& mask, std::int64_t i, std::int64_t begin, std::int64_t count, T* scores) {
  const std::int64_t first = i * mask.query_step + begin * mask.key_step;
  if (mask.added) add_mask(scores, mask.added + first, mask.key_step, count);
  if (mask.seen) choose(scores, mask.seen + first, mask.key_step, count, mask.hidden);
}

/// Gradients of scores that the mask has put others in the place of become zeros.
template <class T>
void drop_hidden(const DenseMask<T>& mask, std::int64_t i, std::int64_t begin, std::int64_t count,
                 T* slopes) {
  if (mask.seen)
    choose(slopes, mask.seen + i * mask.query_step + begin * mask.key_step, mask.key_step, count, T(0));
}

}  // namespace braid::attention
