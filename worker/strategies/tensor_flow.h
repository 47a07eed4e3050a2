// How values lie on the workers of a group under strategy TENSOR: whole on each, in equal slices along an
// axis, or as terms whose sum over the group is the value. Given how the weights lie, the rest of a training
// graph follows, forward and backward, node by node (axis_labels.h); where a node needs an input in another
// way than it is made, the group exchanges it. Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "worker/strategies/axis_labels.h"
#include "worker/strategies/pipeline_nodes.h"

namespace braid::worker {

struct Layout {
  enum Kind { Whole, Slice, Term };
  Kind kind = Whole;
  int axis = 0;  // of Slice

  static Layout slice(int axis) { return {Slice, axis}; }
  static Layout term() { return {Term, 0}; }
  friend auto operator<=>(const Layout&, const Layout&) = default;
};

/// What the group exchanges so that each of it has a value that is in slices or terms.
struct GroupExchange {
  ValueRef value;
  Layout from;
  std::int64_t bytes = 0;  // of the whole value
  bool backward = false;
};

struct LayoutFlow {
  // By node, and its outputs or inputs. Those of nodes that a step does not need are empty.
  std::vector<std::vector<Layout>> made, needed;
  std::vector<GroupExchange> exchanges;
  /// Variables that a forward node would rather have in slices, along that axis.
  std::map<std::string, int> wishes;
  /// Values that forward nodes take slices of, although each worker makes them whole.
  std::vector<ValueRef> sliced;

  std::int64_t count(Layout::Kind from, bool backward) const;
};

/// A training graph, as often as wanted with other weights in slices.
class TensorGraph {
 public:
  /// `parts`: workers of a group. `may_slice`: whether a variable may lie in slices along an axis.
  TensorGraph(const TrainingGraph& training, const PipelineNodes& nodes, int parts,
              std::function<bool(const std::string& variable, int axis)> may_slice);

  /// `slices`: axes, by variable.
  LayoutFlow flow(const std::map<std::string, int>& slices) const;

  /// The labels of a node's axes; null: it needs its inputs whole.
  const AxisLabels* labels(NodeId id) const;
  /// The variable whose value that is, as it is; empty: it is none's.
  const std::string& variable_of_value(ValueRef value) const;
  const PipelineNodes& nodes() const { return nodes_; }
  int parts() const { return parts_; }

 private:
  struct Walk;
  void count_uses();
  void find_variables();
  bool can_cut(const Node& node, const AxisLabels& labels, int label) const;
  int label_to_cut(const Node& node, const AxisLabels& labels, const std::vector<Layout>& have) const;
  void pass_terms(const Node& node, const AxisLabels& labels, const std::vector<Layout>& have,
                  std::vector<Layout>& needed, std::vector<Layout>& made) const;
  void note_wishes(const Node& node, const std::map<std::string, int>& slices, Walk& walk) const;

  const TrainingGraph& training_;
  const PipelineNodes& nodes_;
  const int parts_;
  const std::function<bool(const std::string&, int)> may_slice_;
  std::vector<std::optional<AxisLabels>> labels_;  // by node
  std::vector<std::string> variables_;             // by node
  std::map<ValueRef, int> uses_;
};

}  // namespace braid::worker
