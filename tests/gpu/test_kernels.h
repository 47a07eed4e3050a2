// Kernels for CUDA of the test ops (tests/engine/testing/test_ops.h): Mix, Change, Update and Gather, with
// the bits that the host's have. They spoil their outputs, and wait for a time that is drawn in each run,
// also in those of one captured graph, before they read their inputs. Fail stops the device for the whole
// process. Other test ops stay on the host.
#pragma once

#include "engine/ir/op.h"

namespace braid::testing {

/// Once; graphs that are compiled from then on may use them.
void register_test_kernels();

/// Keeps a stream busy for a time from `least_ns` on, and up to `most_ns` more, which are drawn when it runs.
void random_delay(StreamRef stream, unsigned most_ns, unsigned least_ns = 0);

}  // namespace braid::testing
