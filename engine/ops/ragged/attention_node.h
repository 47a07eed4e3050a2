// What a node of ragged attention says (ragged_attention.cc has the terms): where its inputs are and what its
// attributes are. Thread rule: pure functions.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/ir/op.h"
#include "engine/ops/ragged/ragged_mask.h"

namespace braid::attention {

/// Where values are parts of wider ones, as in the output of one product, and gradients are written where
/// such a value's gradient has them. Devices have kernels for it; the pass `attention_parts` makes such
/// nodes.
struct HeadParts {
  std::int64_t heads = 0;               // of the node; 0: all that q has
  std::vector<std::int64_t> first;      // heads of q, k and v that are another's, in front; empty: none
  std::int64_t joined = 0;              // heads of the one output that holds dq, dk and dv; 0: three outputs
  std::vector<std::int64_t> gradients;  // heads in front of dq, dk and dv there
  std::vector<std::int64_t> rest;       // columns in front of what the last inputs are copied to there

  explicit HeadParts(const AttrMap& attrs)
      : heads(attrs.get("heads", std::int64_t{0})),
        first(attrs.get("first_heads", std::vector<std::int64_t>{})),
        joined(attrs.get("joined_heads", std::int64_t{0})),
        gradients(attrs.get("first_gradients", std::vector<std::int64_t>{})),
        rest(attrs.get("rest_columns", std::vector<std::int64_t>{})) {}
  bool are_there() const { return heads > 0 || joined > 0; }
  std::int64_t first_of(std::size_t input) const { return input < first.size() ? first[input] : 0; }
};

struct Inputs {
  bool softmax = false, backward = false, targets = false;
  int offsets() const { return backward ? 4 : 3; }
  int of_targets() const { return offsets() + 1; }
  int output() const { return offsets() + (targets ? 2 : 1); }  // of softmax's gradient
};

/// Throws: InvalidArgument for another activation.
inline bool is_softmax(const AttrMap& attrs) {
  const std::string name = attrs.get("activation", std::string("silu"));
  if (name != "silu" && name != "softmax")
    throw InvalidArgument("attribute activation is neither silu nor softmax: '" + name + "'");
  return name == "softmax";
}

inline Inputs inputs_of(const Node& node, bool backward) {
  Inputs in{is_softmax(node.attrs), backward, false};
  const int least = in.offsets() + 1 + (backward && in.softmax ? 2 : 0);
  const std::size_t rest = HeadParts(node.attrs).rest.size();
  in.targets = static_cast<int>(node.inputs.size() - rest) > least;
  return in;
}

inline MaskRules rules_of(const AttrMap& attrs) {
  return {attrs.get("causal", true), attrs.get("window", std::int64_t{0}),
          attrs.get("context", std::int64_t{0})};
}

/// Of q k^T; `width`: of a head of q.
inline double scale_of(const AttrMap& attrs, std::int64_t width) {
  const double given = attrs.get("scale", 0.0);
  return given > 0 ? given : 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(width, 1)));
}

}  // namespace braid::attention
