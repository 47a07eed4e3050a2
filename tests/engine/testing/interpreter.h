// Runs a graph one node after the other on the calling thread: the serial oracle of the executor, and how
// ops, gradients and imported graphs are tested without the passes. Every value gets memory of its own, views
// are copies, a variable's reads come before its writes unless an edge says otherwise. Nothing is fused,
// folded away or done in place. Thread rule: one thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "engine/ir/graph.h"
#include "engine/ir/op.h"
#include "engine/ir/tensor.h"

namespace braid::testing {

class Interpreter {
 public:
  using Feeds = std::map<std::string, Tensor>;  // by value name

  explicit Interpreter(const Graph& graph, int pool_width = 1) : graph_(graph), pool_(pool_width) {}

  /// Runs what the fetches and targets need and returns the fetched values, in their order.
  /// Throws: what shape inference and kernels throw, with the node's name.
  std::vector<Tensor> run(const Feeds& feeds, const std::vector<std::string>& fetches,
                          const std::vector<std::string>& targets = {});

  /// Variables by logical name; they outlive run(). One that a run needs and that is not here starts as
  /// zeros.
  std::map<std::string, Tensor>& variables() { return variables_; }
  StepParams& params() { return params_; }
  Services& services() { return services_; }

 private:
  const Graph& graph_;
  ThreadPool pool_;
  Services services_;
  StepParams params_;
  std::map<std::string, Tensor> variables_;
};

}  // namespace braid::testing
