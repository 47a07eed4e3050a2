// LOCAL: one process, updates in place.
#include "proto/job.pb.h"
#include "worker/job/optimizers.h"
#include "worker/step/clip_gradients.h"
#include "worker/step/loss_scale.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {
namespace {

class LocalStrategy : public Strategy {
 public:
  explicit LocalStrategy(const proto::Job& job) : optimizers_(job), clip_norm_(job.optimizer().clip_norm()) {}
  std::string_view name() const override { return "LOCAL"; }
  void rewrite_training(TrainingGraph& training) override {
    unscale_gradients(training, training.gradients);
    clip_by_global_norm(training, training.gradients, clip_norm_, true);
    for (const auto& gradient : training.gradients)
      add_update(training, gradient, optimizer_of(training, optimizers_, gradient.variable.name));
  }
  std::uint64_t start(const CheckpointInfo*, bool, std::uint64_t step, const WaitContext&) override {
    return step;
  }

 private:
  const Optimizers optimizers_;
  const float clip_norm_;
};

}  // namespace

std::unique_ptr<Strategy> make_local_strategy(const proto::Job& job) {
  return std::make_unique<LocalStrategy>(job);
}

}  // namespace braid::worker
