// The ops' dependency graph in the form that scheduling needs: users beside deps, modelled costs, priorities.
// Formulas: priority(v) = cost(v) + max over users u of priority(u), the length of the longest path that
// starts at v (Graham's critical-path rule); the largest priority is the critical path's length. Thread rule:
// immutable once made.
#pragma once

#include <vector>

#include "engine/program/plan.h"

namespace braid {

struct CostModel;  // cost_model.h

class Dag {
 public:
  explicit Dag(const Plan& plan);

  int size() const { return static_cast<int>(costs_.size()); }
  const std::vector<int>& deps(int op) const { return deps_[static_cast<std::size_t>(op)]; }
  const std::vector<int>& users(int op) const { return users_[static_cast<std::size_t>(op)]; }
  double cost(int op) const { return costs_[static_cast<std::size_t>(op)]; }
  double priority(int op) const { return priorities_[static_cast<std::size_t>(op)]; }
  /// Of the side on which the program's streams are.
  const CostModel& model() const { return *model_; }
  bool is_async(int op) const { return async_[static_cast<std::size_t>(op)]; }

  /// A topological order in which, of what is ready, the largest priority comes first; ties as in
  /// the graph as it was written.
  std::vector<int> priority_order() const;
  /// By what must still follow once an op is done: with all ops of one machine but some that complete
  /// elsewhere, no other order ends earlier (Jackson 1955; Lawler 1973 with precedence). Gradients that are
  /// sent soon come before those that are not sent yet. What completes elsewhere is issued as soon as it is
  /// ready: on its lane it would else stand behind what is ready later.
  std::vector<int> delivery_order() const;
  /// A topological order in which, of what is ready, what was written first comes first.
  std::vector<int> rank_order() const;
  /// Ops of one longest path, first to last; ties by number.
  std::vector<int> critical_path() const;

 private:
  void rank_ends();
  template <class Before>
  std::vector<int> sort(Before before) const;

  const CostModel* model_;
  std::vector<std::vector<int>> deps_, users_;
  std::vector<double> costs_, priorities_;
  std::vector<NodeId> ranks_;  // the place in the graph as it was written, or near it
  std::vector<char> async_;
};

/// Predicted times of a step's ops, in microseconds from its beginning.
struct Timeline {
  std::vector<double> start, done;  // by op
  double end = 0;                   // of the step
};

/// Of a step under an assignment of streams, ops issued in `order`: each stream runs one op at a time, an
/// asynchronous op frees its stream once issued, a dependency on another stream costs a wake-up, and an op is
/// slowed by every other compute stream that is busy when it starts.
Timeline predict(const Dag& dag, const std::vector<int>& order, const std::vector<int>& streams,
                 int stream_count);

/// List scheduling on given streams (Graham 1969): a stream that is free starts, of its ops whose
/// dependencies are complete, the one with the largest priority. The ops in the order of their predicted
/// starts, which is topological; ties by number.
std::vector<int> list_order(const Dag& dag, const std::vector<int>& streams, int stream_count);

}  // namespace braid
