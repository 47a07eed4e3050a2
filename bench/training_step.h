// A whole training step for benches that time programs without a worker: forward, backward and updates of a
// model, compiled as the bench says, and run step after step with several in flight.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/optim.h"
#include "engine/compile/compile.h"
#include "engine/device/accelerator.h"
#include "engine/exec/instance.h"
#include "engine/exec/runtime.h"
#include "engine/ir/graph.h"
#include "models/model.h"

namespace braid::bench {

struct Training {
  Graph graph;
  CompileRequest request;  // fetches the loss; feeds are still to be given
};

/// Every variable is updated by `optimizer`, whose row_wise is for tables alone.
Training make_training(const ModelGraph& model, const OptimizerSpec& optimizer);
/// Variables whose gradients are rows are updated by `of_rows`, all others by `dense`.
Training make_training(const ModelGraph& model, const OptimizerSpec& dense, const OptimizerSpec& of_rows);

/// Adds feeds of `batch` rows to the request. Result: made-up values of them: labels below `classes`, other
/// integers below `ids`, floats around 0. The same ones each time.
std::vector<Tensor> made_up_feeds(Training& training, const std::vector<std::string>& columns,
                                  std::int64_t batch, std::int64_t classes, std::int64_t ids);

/// On the device, where there is one, else as they are.
std::vector<Tensor> on_device(const std::vector<Tensor>& feeds, const std::shared_ptr<Accelerator>& device);

/// Thread rule: one thread.
class TimedSteps {
 public:
  struct Options {
    float learning_rate = 1e-3F;
    std::function<bool(const VariableInfo&)> stays_zero = {};  // variables that get no values of their own
  };
  TimedSteps(const Training& training, const CompileOptions& compiling,
             const std::shared_ptr<Accelerator>& device, Options options);
  TimedSteps(const Training& training, const CompileOptions& compiling,
             const std::shared_ptr<Accelerator>& device)
      : TimedSteps(training, compiling, device, Options()) {}

  /// Steps on these batches in turn, until all are done. Throws: what steps throw.
  void run(const std::vector<std::vector<Tensor>>& batches, int count);
  /// Microseconds a step: elapsed, or of the process's CPU time.
  double time_us(const std::vector<std::vector<Tensor>>& batches, int count, bool cpu_time = false);
  /// The median of that over `rounds` rounds. REQUIRES: rounds > 0.
  double median_us(const std::vector<std::vector<Tensor>>& batches, int count, int rounds,
                   bool cpu_time = false);

  const Program& program() const { return *program_; }
  const std::vector<float>& losses() const { return losses_; }  // of all steps

 private:
  void finish();

  const Options options_;
  std::shared_ptr<const Program> program_;
  Runtime runtime_;
  std::unique_ptr<Instance> instance_;
  std::uint64_t next_ = 0;
  std::vector<float> losses_;
};

/// The largest difference of the first `count` losses, as a share of the first ones.
double losses_apart(const std::vector<float>& losses, const std::vector<float>& others, std::size_t count);

}  // namespace braid::bench
