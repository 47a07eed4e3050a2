// Which axes of a node's inputs and outputs go together: an axis that has a label of the output's can be cut
// into equal slices, and a slice of the output is made of slices of the inputs; an input without the label is
// needed whole. Strategy TENSOR moves slices through a graph by this. Thread rule: pure functions.
#pragma once

#include <optional>
#include <vector>

#include "engine/ir/graph.h"

namespace braid::worker {

struct AxisLabels {
  static constexpr int kNone = -1;  // the axis cannot be cut
  using Labels = std::vector<int>;  // by axis
  std::vector<Labels> inputs, outputs;
  /// What a slice along a label that no output has makes is added up to the output.
  bool adds_up = false;
  /// A sum of values goes through: of inputs that are each a term of a sum comes a term of the output's.
  bool linear = false;
  /// Input 0 alone is such a value; the others say shapes and axes.
  bool one_value = false;
};

/// Of a node of a graph with the shapes of a step; nothing where the op has no rule, or a shape is not known:
/// it needs its inputs whole.
std::optional<AxisLabels> axis_labels(const Graph& inferred, const Node& node);

/// The axis that has the label; -1: none has.
int axis_of_label(const AxisLabels::Labels& labels, int label);

/// The first axis of an input that a product sums over, of weights their rows. Nothing: it is no sum.
std::optional<int> summed_axis(const AxisLabels& labels, int input);

}  // namespace braid::worker
