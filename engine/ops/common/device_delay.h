// A kernel that takes a time and does nothing, for what stands in the place of another
// (engine/exec/stubbed_peers.h), also where the build has no CUDA.
#pragma once

#include "engine/ir/op.h"

namespace braid {

/// Enqueued on KernelArgs::stream: one thread of the device that waits so many microseconds. In a build
/// without CUDA nothing.
void device_delay(const KernelArgs& args, double us);

}  // namespace braid
