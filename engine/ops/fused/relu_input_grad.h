// What braid.ReluInputGrad is for, on a device.
#pragma once

#include <cstdint>

#include "engine/ir/op.h"

namespace braid {

/// Columns of x: a thread keeps a sum of each.
inline constexpr std::int64_t kMostInputColumns = 16;

}  // namespace braid
