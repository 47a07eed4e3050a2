// Learning rate of a step. Pure function of the job and the step, so a restart continues on the same curve.
//   warm-up   lr * (step + 1) / warmup_steps                        while step < warmup_steps
//   LINEAR    lr * (1 - (1 - end_factor) * p)                       p = (step - warmup) / (total - warmup),
//   at most 1 COSINE    lr * (end_factor + (1 - end_factor) * (1 + cos(pi p)) / 2) STEP      lr * factor ^
//   floor(step / every)
#pragma once

#include <cstdint>

namespace braid::proto {
class Job;
}

namespace braid::worker {

float learning_rate(const proto::Job& job, std::uint64_t step, std::uint64_t total_steps);

}  // namespace braid::worker
