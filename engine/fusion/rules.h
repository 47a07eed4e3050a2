// How ops take part in fused regions. An op says it where it is registered:
//
//   rules().add("Relu", {.loop = ...})              one step: its formula (OpTraits) on a GPU, this loop on
//   the CPU rules().add("Softmax", {.steps = write_steps})  several steps, each an op with a loop, a cast or
//   a reduction
//
// The loops are those of the ops' own kernels, so that a region on the CPU has their bits. Thread rule:
// filled while the ops are registered; const from then on.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/fusion/region.h"
#include "engine/ir/op.h"

namespace braid::fusion {

/// y[i] = f(in[0][i], in[1][i], ...) for n elements one after the other; y is one of the operands or overlaps
/// none.
using ElementLoop = std::function<void(const void* const* in, void* y, std::int64_t n)>;

/// What a node does, as steps over its domain: a grid whose last axis, where rows are reduced, is `columns`.
struct NodeSteps {
  /// Operand ~i of a step is input i, an operand from 0 on an earlier step.
  struct Input {
    int input = 0;  // of the node
    DType dtype = DType::Float32;
    Axes axes;  // over the domain
  };
  std::int64_t elements = 0;
  std::int64_t columns = 0;  // 0: no row is reduced
  std::vector<Input> inputs;
  std::vector<Region::Step> steps;
  std::vector<int> outputs;  // by output of the node: its step, or -1

  bool has(Region::Kind kind) const {
    return std::any_of(steps.begin(), steps.end(),
                       [kind](const Region::Step& step) { return step.kind == kind; });
  }
  bool sums_columns() const { return has(Region::Kind::Columns); }
  /// Reduces an axis in front of the last ones.
  bool folds() const {
    return std::any_of(steps.begin(), steps.end(), [](const Region::Step& step) { return step.last; });
  }
};

/// What a rule writes a node's steps with. Values are numbers that its functions give.
class StepWriter {
 public:
  StepWriter(const Node& node, std::span<const OutputInfo> inputs, std::span<const Tensor* const> values);

  const Node& node() const { return node_; }
  const OutputInfo& input_info(int i) const { return infos_[static_cast<std::size_t>(i)]; }
  const OutputInfo& output_info(int i = 0) const { return node_.outputs[static_cast<std::size_t>(i)]; }
  /// The input where it is known at compile time, else null.
  const Tensor* known(int i) const { return values_[static_cast<std::size_t>(i)]; }

  /// Sets the domain, which is output 0's shape where a rule does not call this. REQUIRES: before all others.
  void over(const Shape& domain, std::int64_t columns = 0);

  /// Input i, repeated to the domain; or as if it had this shape.
  int input(int i) { return input_as(i, input_info(i).shape); }
  int input_as(int i, const Shape& shape);
  int constant(double number, DType dtype);
  /// Of the largest operand's extent.
  int apply(std::string_view op, std::vector<int> operands, Parameters parameters = {});
  /// The same, an element for each of the domain, of a type that is not the first operand's.
  int apply_full(std::string_view op, std::vector<int> operands, DType dtype, Parameters parameters = {});
  int cast(int value, DType dtype);
  /// A random number in [0, 1) for each element of the domain, those of fill_uniform01 (base/init.h) under
  /// the RandomKey of that name's hash and salt.
  int uniform(std::uint64_t name_hash, std::uint64_t salt);
  int reduce(RowReduction reduction, int value);
  /// The sum over all axes of the domain but the last ones, of `columns` elements; an output only.
  int sum_columns(int value);
  /// Along an axis of `length` in front of the last ones, of `columns` elements (over): of the elements so
  /// far, this one too unless it is exclusive; from the last one on where it is reverse.
  int scan(RowReduction reduction, int value, std::int64_t length, bool reverse, bool exclusive);
  /// Of all elements along such an axis; an output only.
  int fold(RowReduction reduction, int value, std::int64_t length);
  void output(int i, int value);

  NodeSteps take() { return std::move(made_); }

 private:
  Extent extent_of(int value) const;
  DType dtype_of(int value) const;
  int add(Region::Step step);

  const Node& node_;
  std::span<const OutputInfo> infos_;
  std::span<const Tensor* const> values_;
  Shape domain_;
  NodeSteps made_;
};

struct FusionRule {
  /// Null for types that the op does not take.
  ElementLoop (*loop)(std::string_view op, std::span<const DType> operands, DType result,
                      const Parameters& parameters) = nullptr;
  /// False: this node cannot be fused. Null: one step, the op itself.
  bool (*steps)(StepWriter&) = nullptr;
  /// Although the op is stateful: its steps draw the same numbers as its kernel.
  bool draws = false;
};

class FusionRules {
 public:
  void add(std::string_view op, FusionRule rule);
  const FusionRule* find(std::string_view op) const;
  const std::map<std::string, FusionRule, std::less<>>& all() const { return rules_; }

 private:
  std::map<std::string, FusionRule, std::less<>> rules_;
};
/// The process's, filled with the registry of ops.
FusionRules& rules();

/// Neither side effects nor a state that a region would lose: an op that draws random numbers by name and
/// step has none (FusionRule::draws).
bool has_no_state(const OpDef& op);

/// A node's steps; nothing where it cannot be fused: it has no rule, types without a loop or a formula,
/// shapes that are not known, or no elements.
std::optional<NodeSteps> steps_of(const Node& node, std::span<const OutputInfo> inputs,
                                  std::span<const Tensor* const> values);

/// The loop of an Apply or Cast step. Throws: InvalidArgument when there is none.
ElementLoop loop_of(const Region& region, const Region::Step& step);

}  // namespace braid::fusion
