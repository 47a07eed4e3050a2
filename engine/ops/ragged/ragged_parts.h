// What braid.RaggedConcat and braid.RaggedSplit say of their two parts. Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "engine/ir/attr.h"

namespace braid {

inline constexpr const char* kPartWidths[] = {"a_width", "b_width"};

/// Where the inputs of a node are that say how long the rows of a and of b are.
struct RaggedParts {
  std::int64_t width[2];
  int offsets[2];  // input; -1: a width
  int inputs = 0;
};

/// `first`: the input at which offsets begin.
inline RaggedParts ragged_parts(const AttrMap& attrs, int first) {
  RaggedParts parts{};
  parts.inputs = first;
  for (const int p : {0, 1}) {
    parts.width[p] = attrs.get(kPartWidths[p], std::int64_t{0});
    parts.offsets[p] = parts.width[p] > 0 ? -1 : parts.inputs++;
  }
  return parts;
}

}  // namespace braid
