// How values lie on the workers of a group under strategy TENSOR: whole on each, in equal slices along an
// axis, or as terms whose sum over the group is the value. Given how the weights lie, the rest of a training
// graph follows, forward and backward, node by node (axis_labels.h); where a node needs an input in another
// way than it is made, the group exchanges it. Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "worker/strategies/axis_labels.h"
#include "worker/strategies/pipeline_nodes.h"

namespace braid::worker {

struct Layout {
  enum Kind { Whole, Slice, Term };
  Kind kind = Whole;
  int axis = 0;          // of Slice
  bool of_rows = false;  // a Slice that weights have not asked for (strategy.tensor.sequence)

  static Layout slice(int axis, bool of_rows = false) { return {Slice, axis, of_rows}; }
  static Layout term() { return {Term}; }
  /// By how the value lies.
  friend bool operator==(const Layout& a, const Layout& b) { return a.kind == b.kind && a.axis == b.axis; }
  friend auto operator<=>(const Layout& a, const Layout& b) {
    return std::pair(a.kind, a.axis) <=> std::pair(b.kind, b.axis);
  }
};

/// What the group exchanges so that each of it has a value that is in slices or terms: whole, or a slice of
/// a sum; or the first one's gradient of a whole variable, so that all have the same bits of it.
struct GroupExchange {
  ValueRef value;
  Layout from, to;
  std::int64_t bytes = 0;  // of the whole value
  bool backward = false;
  bool together = false;  // with others of these, in one exchange: gradients of whole variables
};

/// Elements of a whole variable whose gradient is exchanged together with others.
inline constexpr std::int64_t kSmallGradient = 1 << 16;

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

  /// `slices`: axes, by variable. `rows`: terms become slices of rows where a node can work on these,
  /// until weights in slices need all of them.
  LayoutFlow flow(const std::map<std::string, int>& slices, bool rows = false) const;

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
  /// The label along which a node works on slices, and whether these are of rows.
  struct Cut {
    int label = AxisLabels::kNone;
    bool of_rows = false;
  };
  Cut cut_of(const Node& node, const AxisLabels& labels, const std::vector<Layout>& have, bool rows) const;
  void follow(const Node& node, const std::map<std::string, int>& slices, bool rows, Walk& walk) const;
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
