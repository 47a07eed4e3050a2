// Initial values of variables, from the attributes that GraphBuilder::variable writes on VarHandleOp:
// _init_kind (an InitKind), _init_a, _init_b. A value depends on (job seed, variable name, element) only, so
// every process of a job, and a parameter server that makes single rows, agree on it. Thread rule: pure.
#pragma once

#include <cstdint>

#include "base/init.h"
#include "engine/ir/graph.h"
#include "engine/ir/tensor.h"

namespace braid {

/// What the node's attributes say; zeros when they are absent.
/// Throws: InvalidArgument naming the node when _init_kind is none of InitKind.
InitSpec variable_init_spec(const Node& var_handle);

/// The stream that the variable's values are drawn from: make_rng_key(seed, variable name).
RngKey variable_init_key(const Node& var_handle, std::uint64_t seed);

/// Fills `out` with the variable's initial value, in stream variable_init_key(). Types other than
/// float32 take zeros or a constant. Throws: InvalidArgument naming the node.
void initialize_variable(const Node& var_handle, std::uint64_t seed, Tensor& out);

}  // namespace braid
