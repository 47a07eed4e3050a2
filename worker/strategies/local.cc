// LOCAL: one process, updates in place.
#include "worker/strategies/strategy.h"

namespace braid::worker {
namespace {

class LocalStrategy : public Strategy {
 public:
  explicit LocalStrategy(const OptimizerSpec& optimizer) : optimizer_(optimizer) {}
  std::string_view name() const override { return "LOCAL"; }
  void rewrite_training(TrainingGraph& training) override {
    for (const auto& gradient : training.gradients) add_update(training, gradient, optimizer_);
  }
  std::uint64_t start(const CheckpointInfo*, bool, std::uint64_t step, const WaitContext&) override {
    return step;
  }

 private:
  OptimizerSpec optimizer_;
};

}  // namespace

std::unique_ptr<Strategy> make_local_strategy(const OptimizerSpec& optimizer) {
  return std::make_unique<LocalStrategy>(optimizer);
}

}  // namespace braid::worker
