// Which keys a query of a ragged row sees. A row has `length` values: first `context` ones that describe the
// row, then its history, last `targets` candidates. Thread rule: values.
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

struct MaskRules {
  bool causal = true;
  std::int64_t window = 0;   // 0: none
  std::int64_t context = 0;  // values of each row
};

/// Keys [from, to), and with `self` the query's own place, which is not in it.
struct KeyRange {
  std::int64_t from = 0, to = 0;
  bool self = false;
};

struct RowMask {
  MaskRules rules;
  std::int64_t length = 0, history = 0;  // history: values in front of the candidates

  KeyRange keys(std::int64_t i) const {
    if (i >= history) return {std::min(first_in_window(place(history)), history), history, true};
    if (i < rules.context) return {0, history, false};
    std::int64_t to = history;
    if (rules.causal)
      to = i + 1;
    else if (rules.window > 0)
      to = std::min(history, i + rules.window + 1);
    return {first_in_window(place(i)), to, false};
  }
  /// What queries [begin, end) see together: one range, and where there are candidates among them those.
  KeyRange span(std::int64_t begin, std::int64_t end) const {
    KeyRange all{history, 0, end > history};
    for (std::int64_t i = begin; i < end; ++i) {
      const KeyRange one = keys(i);
      all.from = std::min(all.from, one.from);
      all.to = std::max(all.to, one.to);
    }
    return all;
  }

 private:
  std::int64_t place(std::int64_t i) const {
    return rules.context > 0 ? std::max<std::int64_t>(i - rules.context + 1, 0) : i;
  }
  /// The first key that is at most `window` before a place.
  std::int64_t first_in_window(std::int64_t at) const {
    const std::int64_t first = at - rules.window;
    if (rules.window == 0 || first <= 0) return 0;
    return rules.context > 0 ? first + rules.context - 1 : first;
  }
};

}  // namespace braid
