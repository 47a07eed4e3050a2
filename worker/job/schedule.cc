#include "worker/job/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/init.h"
#include "proto/job.pb.h"

namespace braid::worker {

float learning_rate(const proto::Job& job, std::uint64_t step, std::uint64_t total_steps) {
  const auto& schedule = job.schedule();
  const double base = job.optimizer().learning_rate();
  const std::uint64_t warmup = schedule.warmup_steps();
  if (step < warmup)
    return static_cast<float>(base * static_cast<double>(step + 1) / static_cast<double>(warmup));
  const double span = total_steps > warmup ? static_cast<double>(total_steps - warmup) : 1.0;
  const double p = std::min(1.0, static_cast<double>(step - warmup) / span);
  const double end = schedule.end_factor();
  double factor = 1.0;
  switch (schedule.kind()) {
    case proto::Schedule::LINEAR_DECAY:
      factor = 1 - (1 - end) * p;
      break;
    case proto::Schedule::COSINE_DECAY:
      factor = end + (1 - end) * (1 + std::cos(std::numbers::pi * p)) / 2;
      break;
    case proto::Schedule::STEP_DECAY:
      if (schedule.every() > 0)
        factor = std::pow(schedule.factor(), static_cast<double>(step / schedule.every()));
      break;
    default:
      break;
  }
  return static_cast<float>(base * factor);
}

std::uint64_t random_seed(const proto::Job& job, int rank) {
  return rank == 0 ? job.seed() : make_rng_key(job.seed(), "worker", static_cast<std::uint64_t>(rank)).value;
}

}  // namespace braid::worker
