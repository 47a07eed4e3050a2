// Declarations of ops with any number of inputs: OpDef lists inputs one by one, so its lists go up to
// kDeclaredInputs. An input beyond it is treated as read in full, which is right, only less lean.
#pragma once

#include <numeric>
#include <vector>

namespace braid {

inline constexpr int kDeclaredInputs = 128;

/// first, first + 1, ... up to kDeclaredInputs.
inline std::vector<int> inputs_from(int first) {
  std::vector<int> inputs(static_cast<std::size_t>(kDeclaredInputs - first));
  std::iota(inputs.begin(), inputs.end(), first);
  return inputs;
}

}  // namespace braid
