// One call of an op's gradient rule: what the rule sees of the forward node, and the gradients that it sets.
// Holds copies, because the graph's nodes move when the rule adds some. Thread rule: the graph's thread.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "engine/autodiff/backward_nodes.h"
#include "engine/ir/op.h"

namespace braid {

class NodeGradient : public GradContext {
 public:
  /// `grads[i]` is the gradient by output i, or not valid.
  NodeGradient(BackwardNodes& nodes, NodeId forward, std::vector<ValueRef> grads);

  const Node& node() const override { return node_; }
  ValueRef input(int i) const override { return node_.inputs.at(static_cast<std::size_t>(i)); }
  ValueRef output(int i) const override { return {node_.id, i}; }
  ValueRef grad(int i) const override { return grads_.at(static_cast<std::size_t>(i)); }
  const OutputInfo& input_info(int i) const override { return input_infos_.at(static_cast<std::size_t>(i)); }
  const OutputInfo& output_info(int i) const override {
    return node_.outputs.at(static_cast<std::size_t>(i));
  }

  void set_grad(int input, ValueRef gradient) override;
  void set_grad(int input, IndexedSlices gradient) override;
  ValueRef op(std::string_view op, std::vector<ValueRef> inputs, AttrMap attrs) override;
  ValueRef constant(Tensor value) override;

  /// What the rule has set for each input.
  using Result = std::variant<std::monostate, ValueRef, IndexedSlices>;
  const std::vector<Result>& results() const { return results_; }

 private:
  void check_dtype(int input, ValueRef gradient) const;

  BackwardNodes& nodes_;
  Node node_;
  std::vector<ValueRef> grads_;
  std::vector<OutputInfo> input_infos_;
  std::vector<Result> results_;
};

}  // namespace braid
