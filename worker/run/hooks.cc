#include "worker/run/hooks.h"

#include <algorithm>

#include "worker/job/schedule.h"

namespace braid::worker {

float learning_rate(const proto::Job& job, const RunHooks* hooks, std::uint64_t step,
                    std::uint64_t total_steps) {
  const float rate = learning_rate(job, step, total_steps);
  if (hooks == nullptr || hooks->rate_factors.empty()) return rate;
  const std::uint64_t at = step / std::max<std::uint64_t>(1, hooks->factor_every);
  const std::uint64_t last = hooks->rate_factors.size() - 1;
  return static_cast<float>(static_cast<double>(rate) * hooks->rate_factors[std::min(at, last)]);
}

}  // namespace braid::worker
