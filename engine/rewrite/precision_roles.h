// What each node is to mixed precision, looked at one at a time. mixed_precision.cc says what the roles mean.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/program/plan.h"
#include "engine/rewrite/region_program.h"

namespace re2 {
class RE2;
}

namespace braid {

struct HalfForm;

enum class PrecisionRole { Fixed, Product, Follower, Move, Region };

class PrecisionRoles {
 public:
  /// Of the plan's nodes in `order`. The plan must outlive this; nodes that are added later are Fixed.
  /// ERRORS: InvalidArgument, mixed_precision.keep_nodes is no regular expression.
  PrecisionRoles(const Plan& plan, const std::vector<NodeId>& order);
  ~PrecisionRoles();

  PrecisionRole of(NodeId id) const;
  /// Whether the job asks to leave the node as it is.
  bool is_kept(const Node& node) const;
  /// Whether an output's value is known before the step.
  bool is_known(const Node& node) const;

  /// Places among the inputs that the node reads as halves once it converts, and among the outputs that it
  /// can make as halves. REQUIRES: not Fixed; half_inputs also not of a Region.
  std::vector<int> half_inputs(const Node& node) const;
  std::vector<int> half_outputs(const Node& node) const;
  /// Inputs of type float32 whose values are read.
  std::vector<int> float_inputs(const Node& node) const;

  int products() const { return products_; }
  /// Products that stay float32, by reason.
  const std::map<std::string, int>& kept_products() const { return kept_; }

 private:
  PrecisionRole role_of(const Node& node);
  PrecisionRole stays(const Node& node, const char* why);
  bool has_kernel(const Node& node, const std::vector<int>& inputs, bool own_kernel) const;
  bool takes_floats(const Node& node, const HalfForm& form) const;
  bool is_region_node(const Node& node);
  bool is_move(const Node& node) const;

  const Plan& plan_;
  const Graph& graph_;
  const DType half_;
  const bool on_device_;
  NodeStepsCache steps_;
  std::unique_ptr<re2::RE2> keep_;
  std::vector<PrecisionRole> roles_;  // by node
  int products_ = 0;
  std::map<std::string, int> kept_;
};

}  // namespace braid
