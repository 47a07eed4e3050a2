// Ops that make or take apart strings on the host. Programs compute no strings, so these have no kernels:
// where their inputs are known at compile time (constants; feeds too in `braid graph run`, by
// engine/passes/specialize.h) shape inference takes their values from here. Thread rule: pure functions, but
// for ReadFile, which reads its file.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/ir/tensor.h"

namespace braid {

/// All outputs from the values of all inputs. REQUIRES: shape inference has accepted the node. Throws:
/// InvalidArgument, without the node's name.
using StringFold = std::vector<Tensor> (*)(const Node& node, std::span<const Tensor* const> inputs);

/// Null for ops that make no strings.
StringFold string_fold(std::string_view op);

}  // namespace braid
