// What a node of ragged attention says (ragged_attention.cc has the terms): where its inputs are and what its
// attributes are. Thread rule: pure functions.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "engine/ir/op.h"
#include "engine/ops/ragged/ragged_mask.h"

namespace braid::attention {

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
  in.targets = static_cast<int>(node.inputs.size()) > least;
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
