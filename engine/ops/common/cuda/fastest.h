// The fastest of several ways to enqueue the same work, by their time on a stream of their own.
// Thread rule: that of Accelerator.
#pragma once

#include <functional>

#include "base/stream_ref.h"

namespace braid {
class Accelerator;
}

namespace braid::cuda {

/// `run(way, stream)` enqueues way number `way`, which must not depend on what its memory holds; false: that
/// way does not work. Ways take turns; the first one is left only for one that is at least 3 % faster.
/// Waits for the device. Throws: DeviceError, DeadlineExceeded.
int fastest(Accelerator& device, int ways, const std::function<bool(int way, StreamRef stream)>& run);

}  // namespace braid::cuda
