// Single rows of a variable, on the host or on the device, without a copy of the rest. Thread rule: one
// thread at a time, no step in flight that writes the variable.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/exec/runtime.h"

namespace braid::worker {

/// to[k] = row rows[k] of the variable, float32 of that shape, whose rows are `shape[1]` numbers each.
/// `device`: of the store's variables; null where these are on the host. Throws: Internal for a row that it
/// has not; DeviceError.
void read_rows(VariableStore& store, Accelerator* device, const std::string& variable, const Shape& shape,
               std::span<const std::int64_t> rows, float* to);

}  // namespace braid::worker
