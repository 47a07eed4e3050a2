// Single rows of an array on a device, brought to the host without the rest of it.
#pragma once

#include <cstdint>
#include <span>

#include "engine/device/accelerator.h"

namespace braid {

/// to[k] = from[rows[k]], rows of `row_bytes`, a multiple of 4; complete when it returns. `from` is the
/// device's memory, `to` and `rows` any of the host. REQUIRES: rows are of the array, and nobody writes to
/// it. Throws: DeadlineExceeded when the device does not answer; DeviceError. Thread rule: any thread.
void gather_rows_now(Accelerator& device, void* to, const void* from, std::span<const std::int64_t> rows,
                     std::uint64_t row_bytes);

}  // namespace braid
