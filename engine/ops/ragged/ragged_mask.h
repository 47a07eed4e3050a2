// Which keys a query of a ragged row sees, on the CPU and in CUDA kernels. A row has `length` values: first
// `context` ones that describe the row, then its history, last `targets` candidates. Thread rule: values.
//
//   a candidate   the history, context and all, and itself; nobody else sees it
//   context       all of the history
//   history       with `causal` itself and what is before it, else all of the history
// `window` w > 0 hides keys of the history that are more than w places away. The context stands in one place,
// in front of the history; candidates stand in one place, behind it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace braid {

template <class Int>
struct MaskRulesOf {
  bool causal = true;
  Int window = 0;   // 0: none
  Int context = 0;  // values of each row
};

/// Keys [from, to), and with `self` the query's own place, which is not in it.
template <class Int>
struct KeyRangeOf {
  Int from = 0, to = 0;
  bool self = false;
};

/// Queries see more, or as much, the further behind they are, from the first that is no context on; and the
/// first key that they see is never in front of that of queries before them. So two queries say what all
/// between them see.
template <class Int>
struct RowMaskOf {
  using Range = KeyRangeOf<Int>;

  MaskRulesOf<Int> rules;
  Int length = 0, history = 0;  // history: values in front of the candidates

  constexpr Int queries() const { return length; }
  constexpr Int all_keys() const { return length; }
  constexpr Range keys(Int i) const {
    if (i >= history) return {smaller(first_in_window(place(history)), history), history, true};
    if (i < rules.context) return {0, history, false};
    Int to = history;
    if (rules.causal)
      to = i + 1;
    else if (rules.window > 0)
      to = smaller(history, i + rules.window + 1);
    return {first_in_window(place(i)), to, false};
  }
  constexpr bool sees(Int i, Int j) const {
    const Range range = keys(i);
    return (range.from <= j && j < range.to) || (range.self && i == j);
  }
  /// What queries [begin, end) see together: one range, and where there are candidates among them those.
  /// REQUIRES: begin < end.
  constexpr Range span(Int begin, Int end) const {
    const Range first = keys(begin), last = keys(end - 1);
    return {first.from, larger(first.to, last.to), end > history};
  }
  /// Whether one of queries [begin, end) sees one of keys [from, to). REQUIRES: begin < end.
  constexpr bool any(Int begin, Int end, Int from, Int to) const {
    const Range range = span(begin, end);
    return (range.from < to && from < range.to) || (range.self && larger(begin, history) < to && from < end);
  }
  /// Whether each of queries [begin, end) sees each of keys [from, to), apart from itself as a candidate.
  /// REQUIRES: begin < end.
  constexpr bool all(Int begin, Int end, Int from, Int to) const {
    const Int behind = smaller(larger(begin, rules.context), end - 1);  // the first that is no context
    return keys(end - 1).from <= from && to <= smaller(keys(begin).to, keys(behind).to);
  }

 private:
  static constexpr Int smaller(Int a, Int b) { return a < b ? a : b; }
  static constexpr Int larger(Int a, Int b) { return a < b ? b : a; }
  constexpr Int place(Int i) const { return rules.context > 0 ? larger(i - rules.context + 1, 0) : i; }
  /// The first key that is at most `window` before a place.
  constexpr Int first_in_window(Int at) const {
    const Int first = at - rules.window;
    if (rules.window == 0 || first <= 0) return 0;
    return rules.context > 0 ? first + rules.context - 1 : first;
  }
};

using MaskRules = MaskRulesOf<std::int64_t>;
using KeyRange = KeyRangeOf<std::int64_t>;
using RowMask = RowMaskOf<std::int64_t>;

}  // namespace braid
