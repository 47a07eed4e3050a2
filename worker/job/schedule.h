// What a step of a job takes from its number: learning rate and random numbers. Pure functions, so a restart
// continues on the same curve and with the same numbers.
//   warm-up   lr * (step + 1) / warmup_steps                        while step < warmup_steps
//   LINEAR    lr * (1 - (1 - end_factor) * p)         p = (step - warmup) / (total - warmup), at most 1
//   COSINE    lr * (end_factor + (1 - end_factor) * (1 + cos(pi p)) / 2)
//   STEP      lr * factor ^ floor(step / every)
#pragma once

#include <cstdint>

namespace braid::proto {
class Job;
}

namespace braid::worker {

float learning_rate(const proto::Job& job, std::uint64_t step, std::uint64_t total_steps);

/// Seed of the random ops in the steps of worker `rank`. Workers compute different rows of a batch and draw
/// different numbers for them; the first one draws those of a job alone.
std::uint64_t random_seed(const proto::Job& job, int rank);

}  // namespace braid::worker
