// A training step of one of the models of many branches (examples/models/multi_branch.h) on a GPU, for the
// benchmarks of this folder: forward, backward and SGD, float32, inputs fixed in device memory. Thread rule:
// one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/activity.h"
#include "engine/exec/instance.h"
#include "engine/passes/compile.h"
#include "worker/training_graph.h"

namespace braid {

struct BranchCase {
  std::string model;  // towers8, mmoe8x4 or dlrm26
  std::int64_t batch;
};

/// The six cases that are reported.
const std::vector<BranchCase>& branch_cases();

struct BranchTraining {
  worker::TrainingGraph graph;
  CompileRequest request;
};

/// Branch i is scoped to stream i modulo `scopes`; 0: no scopes.
BranchTraining make_branch_training(const BranchCase& c, int scopes);

/// A compiled program with variables at their first values, and its steps.
class BranchSteps {
 public:
  BranchSteps(const BranchTraining& training, std::shared_ptr<const Program> program,
              std::shared_ptr<Accelerator> device, bool graphs);

  /// As many steps as the program allows in flight; all are over at the end.
  void run(int count);
  /// Microseconds a step, over `count` steps.
  double time(int count);
  const std::vector<float>& losses() const { return losses_; }  // of the first steps

 private:
  void start();
  void finish();

  std::shared_ptr<const Program> program_;
  Runtime runtime_;
  Instance instance_;
  std::vector<float> losses_;
  std::uint64_t next_ = 0;
};

/// What the device did in a recorded window of steps.
struct BranchProfile {
  double step_us = 0;     // in the window; recording costs some of it
  double busy_us = 0;     // in which some kernel ran
  double kernels_us = 0;  // sum of the kernels' times
  double kernels = 0;     // their number
  double overlap_factor = 0;
  std::string by_node;  // a line a node, the longest first
};

/// REQUIRES: the sampler was made before `steps`. Records a window while it runs steps.
BranchProfile record(BranchSteps& steps, ActivitySampler& sampler);

/// The median; REQUIRES: not empty.
double median_of(std::vector<double> values);

}  // namespace braid
