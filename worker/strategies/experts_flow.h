// How values lie on the workers of a group under strategy EXPERTS. A worker has rows of its own, and most
// values are of these. Weights of experts, which have an axis of experts, lie in slices along that axis; and
// what is computed with them is of a slice of the experts, for the rows of all workers of the group. Given
// which weights lie in slices, the rest of a training graph follows, forward and backward, node by node
// (axis_labels.h); where a node needs an input in another way than it is made, the group exchanges it. Thread
// rule: values and pure functions.
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

struct ExpertLayout {
  static constexpr int kNoRows = -1;
  enum Kind {
    Own,    // this worker's, of its own rows, or the same on all
    Slice,  // a slice of the experts; with `rows` those of all workers of the group, one worker's behind
            // another's
    Total,  // a slice of the experts, of a sum over the rows of the group: gradients
  };
  Kind kind = Own;
  int experts = 0;     // axis
  int rows = kNoRows;  // axis; kNoRows: weights, and what follows from them alone

  static ExpertLayout slice(int experts, int rows = kNoRows) { return {Slice, experts, rows}; }
  static ExpertLayout total(int experts) { return {Total, experts, kNoRows}; }
  friend auto operator<=>(const ExpertLayout&, const ExpertLayout&) = default;
};

/// A value that the group exchanges.
struct ExpertExchange {
  ValueRef value;
  ExpertLayout from, to;
  std::int64_t bytes = 0;  // of a worker's value
  bool backward = false;
  bool is_all_to_all() const {
    return from.rows != ExpertLayout::kNoRows || to.rows != ExpertLayout::kNoRows;
  }
};

struct ExpertFlow {
  // By node, and its outputs or inputs. Those of nodes that a step does not need are empty.
  std::vector<std::vector<ExpertLayout>> made, needed;
  std::vector<ExpertExchange> exchanges;
  /// Variables that a forward node needs in slices too, along that axis.
  std::map<std::string, int> wishes;
};

/// A product by weights with an axis of experts.
struct ExpertLayer {
  NodeId node = kNoNode;
  std::string variable;
  int axis = 0;  // of the variable
};

/// A training graph, as often as wanted with other weights in slices.
class ExpertGraph {
 public:
  /// `parts`: workers of a group. `may_slice`: whether a variable may lie in slices along an axis.
  ExpertGraph(const TrainingGraph& training, const PipelineNodes& nodes, int parts,
              std::function<bool(const std::string& variable, int axis)> may_slice);

  /// Of the forward pass, inputs first: products that have one axis of the weights, of what they multiply and
  /// of the result, where what they multiply has rows beside it.
  std::vector<ExpertLayer> layers() const;
  /// `slices`: axes, by variable. Throws: InvalidArgument with the node where what becomes of the gradient of
  /// a slice is no gradient.
  ExpertFlow flow(const std::map<std::string, int>& slices) const;

  int parts() const { return parts_; }
  /// The value itself, or the one that it is but for nodes which give it the shape that it has.
  ValueRef origin(ValueRef value) const;

 private:
  struct Walk;
  struct Cut;
  const AxisLabels* labels(NodeId id) const;
  const std::string& variable_of_value(ValueRef value) const {
    return variables_[static_cast<std::size_t>(value.node)];
  }
  bool is_same_on_all(ValueRef value) const;
  void find_variables();
  void find_what_is_the_same();
  bool find_labels(const Node& node, const AxisLabels& labels, const Walk& walk, Cut& cut) const;
  int rows_of_input(const Node& node, const AxisLabels& labels, const Walk& walk, int experts) const;
  bool fits(const Node& node, const AxisLabels& labels, const Walk& walk, Cut& cut) const;
  bool fits_input(const Node& node, std::size_t input, const AxisLabels& labels, const Walk& walk,
                  Cut& cut) const;
  bool fits_output(const Node& node, std::size_t output, const AxisLabels& labels, Cut& cut) const;
  bool add_totals(const Node& node, const AxisLabels& labels, const Walk& walk, Cut& cut) const;
  Walk walk_over(const std::map<std::string, int>& slices, std::map<ValueRef, ExpertLayout> sent) const;
  void follow(const Node& node, const std::map<std::string, int>& slices, Walk& walk) const;
  void note_wishes(const Node& node, const std::map<std::string, int>& slices, Walk& walk) const;

  const TrainingGraph& training_;
  const PipelineNodes& nodes_;
  const int parts_;
  const std::function<bool(const std::string&, int)> may_slice_;
  std::vector<std::optional<AxisLabels>> labels_;  // by node
  std::vector<std::string> variables_;             // by node
  std::vector<char> same_on_all_;                  // by node: of no column and no random number
};

}  // namespace braid::worker
