// Types that ops have no kernels for: float16 and bfloat16 compute in float32 and round each result, small
// integers in int32 and uint32 in int64, whose low bits they keep; convolutions of float64 in float32, the
// largest integer of a window in float64, bools that are sought or scattered in int32. The importer puts
// Casts around such nodes. Ops that only move elements take every type as it is. Thread rule: pure functions.
#pragma once

#include <optional>
#include <string_view>

#include "base/dtype.h"

namespace braid {

/// The type to compute in; nothing for types that have kernels, or cannot be widened.
std::optional<DType> wide_type(DType dtype);

/// The same for an op, some of which have fewer kernels.
std::optional<DType> compute_type(std::string_view op, DType dtype);

/// The op moves elements and computes nothing with them.
bool moves_elements(std::string_view op);

/// Output `output` of the op has the type of its data (not that of an index, or of statistics kept in
/// float32).
bool has_data_type(std::string_view op, int output);

}  // namespace braid
