// Where the tokens of a sparse mixture of experts lie: each of `groups` equal runs of tokens has `capacity`
// slots of every expert, and the slot of an expert's c-th choice in group g is (expert * groups + g) *
// capacity + c. Thread rule: a value.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace braid {

struct ExpertSlots {
  std::int64_t tokens = 0, choices = 0, experts = 1, groups = 1;
  std::int64_t of_group = 0;  // tokens of a group; the last ones may have fewer
  std::int64_t capacity = 1;

  ExpertSlots() = default;
  /// `factor` 0: every expert has a slot for every token.
  ExpertSlots(std::int64_t all_tokens, std::int64_t of_token, std::int64_t of_layer, std::int64_t parts,
              double factor)
      : tokens(all_tokens),
        choices(of_token),
        experts(of_layer),
        groups(parts),
        of_group((all_tokens + parts - 1) / parts) {
    const double share = factor * static_cast<double>(choices * of_group) / static_cast<double>(experts);
    const auto slots = static_cast<std::int64_t>(std::ceil(share - 1e-6));
    const std::int64_t most = std::max<std::int64_t>(of_group, 1);
    capacity = factor > 0 ? std::clamp<std::int64_t>(slots, 1, most) : most;
  }

  std::int64_t rows() const { return groups * capacity; }  // of an expert
  std::int64_t slots() const { return experts * rows(); }
};

}  // namespace braid
