// What nodes of attention by one query a row say (query_attention.cc has the terms). Thread rule: pure
// functions.
#pragma once

#include "engine/ops/ragged/attention_node.h"

namespace braid::attention {

struct QueryInputs {
  bool softmax = false, backward = false;
  int offsets() const { return backward ? 4 : 3; }
  int output() const { return offsets() + 1; }  // of softmax's gradient
};

inline QueryInputs query_inputs_of(const Node& node, bool backward) {
  return {is_softmax(node.attrs), backward};
}

/// Of SiLU, one over what weights are divided by.
template <class T>
T share_of(std::int64_t max_length, std::int64_t longest) {
  return T(1) / static_cast<T>(std::max<std::int64_t>(max_length > 0 ? max_length : longest, 1));
}

}  // namespace braid::attention
