// Ops that put strings elsewhere or tell whether they are equal need not look at the characters: at compile
// time their kernels of int64 run on numbers that stand for the strings. Equal strings have one number, and 0
// is the empty one, which is what kernels fill gaps with. Thread rule: one thread an object.
#pragma once

#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/ir/tensor.h"

namespace braid {

/// Whether the node is of such an op (OpTraits::runs_on_string_ids) and one of its inputs a tensor of
/// strings.
bool moves_strings(const Node& node, std::span<const OutputInfo> inputs);

class StringIds {
 public:
  /// The numbers [shape of `strings`] int64.
  Tensor ids_of(const Tensor& strings);
  /// REQUIRES: numbers that ids_of gave, or 0.
  Tensor strings_of(const Tensor& ids) const;

 private:
  std::unordered_map<std::string, std::int64_t> ids_{{"", 0}};
  std::vector<std::string> strings_{""};
};

}  // namespace braid
