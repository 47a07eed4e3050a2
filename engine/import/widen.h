// Types that ops have no kernels for: float16 and bfloat16 compute in float32 and round each result, small
// integers in int32 and uint32 in int64, whose low bits they keep; some ops widen more (OpTraits::widening).
// The importer puts Casts around such nodes. Ops that only move elements take every type as it is. Thread
// rule: pure functions.
#pragma once

#include <optional>

#include "engine/ir/op.h"

namespace braid {

/// The type to compute in; nothing for types that the op has kernels for, or that cannot be widened.
std::optional<DType> compute_type(const OpDef& op, DType dtype);

/// Output `output` of the op has the type of its data (not that of an index, or of statistics kept in
/// float32).
bool has_data_type(const OpDef& op, int output);

}  // namespace braid
