// What a step is fed with: values of its own batch, and columns of the next one where it works ahead for the
// step behind it (worker/step/next_batch.h). Thread rule: const after construction.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/staging/batch.h"

namespace braid::worker {

class StepFeeds {
 public:
  StepFeeds() = default;
  /// Of a program of `graph` with these feeds, in their order.
  StepFeeds(const Graph& graph, const std::vector<std::string>& feeds);

  /// What a batch has to have, in the order of its tensors.
  const std::vector<std::string>& batch() const { return batch_; }
  bool look_ahead() const { return !next_.empty(); }

  /// The feeds of a step on `own`, before one on `next`.
  std::vector<Tensor> of(const Batch& own, const Batch& next) const;
  /// Those that are of the next batch alone.
  std::vector<Tensor> of_next(const Batch& next) const;

 private:
  std::vector<std::string> batch_;
  std::size_t own_ = 0;            // of them are feeds, the first ones
  std::vector<std::size_t> next_;  // places in a batch
};

}  // namespace braid::worker
