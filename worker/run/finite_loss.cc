#include "worker/run/finite_loss.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "proto/job.pb.h"

namespace braid::worker {
namespace {

constexpr const char* kInput =
    "numbers of the input are NaN or large (columns: log1p, scale or scaling: STANDARD)";

/// The first loss is of values that no update has touched.
std::string causes(const proto::Job& job, std::uint64_t step, double learning_rate) {
  if (step == 0)
    return fmt::format(
        "no update has been made yet, so {}, or the initial values are bad (embedding_init, "
        "model.graph.initial)",
        kInput);
  const proto::Optimizer& optimizer = job.optimizer();
  const bool clips =
      optimizer.clip_norm() > 0 || optimizer.clip_value() > 0 || optimizer.clip_worker_norm() > 0;
  std::string text = fmt::format("optimizer.learning_rate is too large ({:g} in this step)", learning_rate);
  if (!clips) text += ", gradients are not clipped (optimizer.clip_norm: 1)";
  if (job.schedule().warmup_steps() == 0) text += ", the rate has no warm-up (schedule.warmup_steps)";
  return fmt::format("{}, or {}", text, kInput);
}

}  // namespace

void require_finite_loss(const proto::Job& job, std::uint64_t step, float loss, double learning_rate) {
  if (std::isfinite(loss)) return;
  throw Diverged(
      fmt::format("step {}: the loss is {}. Likely causes: {}. --check-numerics "
                  "(runtime.check_numerics) names the node that makes the first such number",
                  step, std::isnan(loss) ? "NaN" : "infinite", causes(job, step, learning_rate)));
}

}  // namespace braid::worker
