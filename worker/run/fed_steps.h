// Training steps of a job whose batches the caller brings, one at a time, alone in this process: for programs
// with a loop of their own. A step is that of a whole run (worker/run/trainer.h), bit for bit. Thread rule:
// one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/ir/tensor.h"
#include "worker/run/hooks.h"
#include "worker/run/steps.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

class FedSteps {
 public:
  /// `hooks`: hooks.train has the columns, of at least one batch; initial and first_step as for a run.
  /// Throws: what compile() throws; InvalidArgument for a job of several processes.
  FedSteps(const proto::Job& job, RunHooks hooks);
  ~FedSteps();
  FedSteps(const FedSteps&) = delete;
  FedSteps& operator=(const FedSteps&) = delete;

  /// What each step is fed with, in order: names, and types and shapes of a batch.
  struct Feed {
    std::string name;
    DType dtype;
    Shape shape;
  };
  const std::vector<Feed>& feeds() const;
  /// Throws: InvalidArgument (other types or shapes than feeds()), Internal (the loss is no number).
  StepOutcome step(std::vector<Tensor> batch);
  std::uint64_t done() const;
  /// Variables and slots, by name; copies.
  std::map<std::string, Tensor> values() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Copies of all variables and slots of a store, by name.
std::map<std::string, Tensor> copy_values(const VariableStore& store);

}  // namespace braid::worker
