// What streams must not change, wherever programs run: the bits of the serial interpreter, and those of one
// stream. Kernels of the test ops spoil their outputs before they wait, so memory that is reused too early
// shows, and take times that are drawn anew in every run.
#pragma once

#include "engine/exec/runtime.h"

namespace braid::testing {

/// Runs `graphs` random graphs with random streams, memory and steps in flight, each several steps, with
/// kernels delayed by up to `delay_us`, and compares fetches and variables with the interpreter's. A runtime
/// with a device runs what it can there, and some nodes on the host.
void expect_random_graphs_keep_the_interpreters_bits(int graphs, int delay_us, const RuntimeOptions& runtime);

/// Runs a training step of four towers `steps` times on 1, 2, ... 8 streams and compares every loss.
void expect_any_streams_keep_the_bits_of_one(std::uint64_t steps, int delay_us,
                                             const RuntimeOptions& runtime);

}  // namespace braid::testing
