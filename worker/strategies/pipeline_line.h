// Cutting a line of nodes into stages: where it may be cut, what a cut sends, and the cuts with the shortest
// longest stage. Thread rule: one thread.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "engine/ir/graph.h"

namespace braid::worker {

class LineOfNodes {
 public:
  explicit LineOfNodes(std::size_t nodes) : costs_(nodes), keep_(nodes + 1) {}

  /// Of the node at that place, in microseconds.
  void add_cost(std::size_t place, double cost_us) { costs_[place] += cost_us; }
  /// A value that is made at one place and read at a later one: it crosses every cut between.
  void add_value(ValueRef value, std::size_t made, std::size_t read, double bytes);
  /// No cut is between these.
  void keep_together(std::size_t one, std::size_t other);

  /// Where each stage ends (the last one behind the last node); empty: there are not so many places. A stage
  /// takes as long as its nodes and what goes over its two ends. The longest is as short as can be; of cuts
  /// that have it so, the one whose stages differ least.
  std::vector<std::size_t> cut(int stages, double bytes_per_us) const;

 private:
  struct Value {
    std::size_t made, read;
    double bytes;
  };
  std::vector<double> costs_;
  std::vector<int> keep_;  // differences: above 0 in the sum, no cut in front of that place
  std::map<ValueRef, Value> values_;
};

}  // namespace braid::worker
