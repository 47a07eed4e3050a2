// A training step of one of the models of many branches (models/multi_branch.h) on a GPU, for the
// benchmarks of this folder: forward, backward and SGD, float32, inputs fixed in device memory. Thread rule:
// one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/compile/compile.h"
#include "engine/device/activity.h"
#include "engine/exec/instance.h"
#include "worker/step/training_graph.h"
#include "worker/strategies/strategy.h"

namespace braid {

struct BranchCase {
  std::string model;  // towers8, mmoe8x4 or dlrm26; mlp4096x16: 16 layers of 4096 with ReLU, mean of the last
  std::int64_t batch;
};

/// The six cases that are reported.
const std::vector<BranchCase>& branch_cases();

struct BranchTraining {
  worker::TrainingGraph graph;
  CompileRequest request;
};

/// Branch i is scoped to stream i modulo `scopes`; 0: no scopes. Updates are SGD's on this device; with a
/// strategy they are its.
BranchTraining make_branch_training(const BranchCase& c, int scopes, worker::Strategy* strategy = nullptr);

/// What a benchmark's program runs in.
RuntimeOptions branch_runtime(std::shared_ptr<Accelerator> device, bool graphs);

/// A compiled program with variables at their first values, and its steps.
/// Strategies that look after steps do so around each.
class BranchSteps {
 public:
  /// `runtime` and `strategy` (may be null) outlive this.
  BranchSteps(const BranchTraining& training, std::shared_ptr<const Program> program, Runtime& runtime,
              worker::Strategy* strategy = nullptr);

  /// As many steps as the program allows in flight; all are over at the end.
  void run(int count);
  /// Microseconds a step, over `count` steps.
  double time(int count);
  /// Of the first `most` steps, or all there were.
  std::vector<float> losses(std::size_t most) const;

 private:
  void start();
  void finish();

  std::shared_ptr<const Program> program_;
  worker::Strategy* strategy_;
  Instance instance_;
  std::vector<float> losses_;
  std::uint64_t next_ = 0, finished_ = 0;
};

/// What the device did in a recorded window of steps.
struct BranchProfile {
  double step_us = 0;     // in the window; recording costs some of it
  double busy_us = 0;     // in which some kernel ran
  double kernels_us = 0;  // sum of the kernels' times
  double kernels = 0;     // their number
  double overlap_factor = 0;
  std::map<std::string, double> stream_us;  // busy, a step
  std::string by_node;                      // a line a node, the longest first
};

/// REQUIRES: the sampler was made before `steps`. Records a window while it runs steps: until the window is
/// over, or exactly `count` where that is not 0, which must take longer.
BranchProfile record(BranchSteps& steps, ActivitySampler& sampler, int count = 0);

/// The median; REQUIRES: not empty.
double median_of(std::vector<double> values);

}  // namespace braid
