// Attention as programs write it, drawn at random, with the gradients of what queries, keys and values are
// made from; and forms that look like it and are not. Thread rule: values.
#pragma once

#include <cstdint>
#include <string>

#include "tests/engine/rewrite/mixed_models.h"
#include "tests/engine/testing/differentiated.h"

namespace braid::testing {

/// Why what is written is no attention that a node computes; None: it is.
enum class Unlike {
  None,
  OtherAxis,     // softmax over queries
  ScaleOfHeads,  // each head has a scale of its own
  WeightsUsedTwice,
  ScoresUsedTwice,
  LearnedMask,  // a mask of keys wants a gradient
  Dropped,      // weights are multiplied before they meet values
  MaskScaled,   // the scale stands behind the mask
  ScaleBelowZero,
  OtherFill,  // what is hidden becomes a score like others
};
inline constexpr Unlike kAllUnlike[] = {
    Unlike::OtherAxis,       Unlike::ScaleOfHeads, Unlike::WeightsUsedTwice,
    Unlike::ScoresUsedTwice, Unlike::LearnedMask,  Unlike::Dropped,
    Unlike::MaskScaled,      Unlike::OtherFill,    Unlike::ScaleBelowZero};

struct WrittenAttention {
  Differentiated model;
  std::string text;  // how it is written
};

/// The same for the same seed. `large`: several tiles of queries and keys.
WrittenAttention written_attention(std::uint64_t seed, Unlike unlike, bool large = false);

/// The same for run_model().
MixedModel runnable(const WrittenAttention& written);

}  // namespace braid::testing
