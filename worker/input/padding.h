// How much of the room that a step has for ragged columns its batches have filled: what lies behind their
// last value is computed, too, where an op works on all values alike. Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/staging/batch.h"

namespace braid::worker {

class Padding {
 public:
  /// `columns`: what a batch has, in the order of its tensors. "x" is ragged where there is "x/offsets".
  explicit Padding(const std::vector<std::string>& columns);

  void count(const Batch& batch);
  /// Of all batches so far, the part of the room that nobody's values filled: 0 to 1. Absent: no column is
  /// ragged.
  std::optional<double> share() const {
    if (room_ == 0) return std::nullopt;
    return 1 - static_cast<double>(values_) / static_cast<double>(room_);
  }

 private:
  std::vector<std::pair<std::size_t, std::size_t>> ragged_;  // places of values and of their offsets
  std::int64_t values_ = 0, room_ = 0;
};

}  // namespace braid::worker
