// The largest nodes of a step by the device's time.
#pragma once

#include <cstddef>
#include <vector>

#include "bench/training_step.h"

namespace braid::bench {

/// Runs steps, of about `us` microseconds each, while the device's activity is recorded, and prints streams
/// and the `top` largest nodes. Beside nodes whose names the device knows, regions among them, stand the
/// bytes and operations that the cost model counts for them, over their time.
void profile(TimedSteps& steps, const std::vector<std::vector<Tensor>>& batches, Accelerator& device,
             double us, std::size_t top);

/// The program's ops with what they read and make, and the texts of its regions.
void print_program(const Program& program);

}  // namespace braid::bench
