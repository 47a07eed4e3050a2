// The cases of every op, which the registry walk (registry_walk_test.cc) runs through all of its checks:
// numeric gradient, shape rule against real output, same bits for any pool width, float32 against float64,
// declared in-place pairs. An op of the registry without a case fails the suite. Cases of stem x are in
// <family>/x_cases.cc as `BRAID_OP_CASES(x) { table.add(...); }`; no list names them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "engine/ir/attr.h"
#include "engine/ir/tensor.h"

namespace braid::testing {

struct OpCase {
  std::string label;
  /// Floating inputs are float64 where the op takes it: the walk makes the float32 variant itself. Inputs
  /// that the op lists in shape_values become known at compile time, all others are fed.
  std::vector<Tensor> inputs = {};
  AttrMap attrs = {};
  /// Inputs that are handles: `inputs[i]` is the variable's initial value.
  std::vector<int> variables = {};
  /// Inputs that become known at compile time beside those of the op's shape_values, which cannot name the
  /// first half of a list.
  std::vector<int> known_inputs = {};
  /// Floating inputs that get no gradient by definition.
  std::vector<int> no_gradient_inputs = {};
  /// Outputs that carry no gradient (indices, masks, saved intermediates): the loss does not depend on them.
  std::vector<int> no_gradient_outputs = {};
  /// False where central differences mean nothing (random ops, steps); the comment beside the case says why.
  bool numeric_gradient = true;
  /// Of the gradient, relative to 1 + |expected|, in float64; float32 cases are compared with 3e-2.
  double tolerance = 1e-6;
  /// Of the float32 variant against float64; 0: there is no float32 variant.
  double float32_tolerance = 2e-5;
};

class OpCaseTable {
 public:
  void add(const std::string& op, OpCase op_case) { cases_[op].push_back(std::move(op_case)); }
  /// Empty when there are none.
  const std::vector<OpCase>& of(const std::string& op) const;
  const std::map<std::string, std::vector<OpCase>>& all() const { return cases_; }

 private:
  std::map<std::string, std::vector<OpCase>> cases_;
};

/// Of all stems, in their alphabetical order.
const OpCaseTable& all_op_cases();

using AddOpCases = void (*)(OpCaseTable& table);
/// What BRAID_OP_CASES calls before main(). Aborts for a stem that is there already.
bool list_op_cases(const char* stem, AddOpCases add);

/// Begins the function that adds a stem's cases to `table`.
#define BRAID_OP_CASES(stem)                                                                               \
  static void cases_##stem(::braid::testing::OpCaseTable& table);                                          \
  [[maybe_unused]] static const bool listed_##stem = ::braid::testing::list_op_cases(#stem, cases_##stem); \
  static void cases_##stem([[maybe_unused]] ::braid::testing::OpCaseTable& table)

// Short forms for tensors.
Tensor f64(Shape shape, std::initializer_list<double> values);
Tensor f32(Shape shape, std::initializer_list<float> values);
Tensor i32(Shape shape, std::initializer_list<std::int32_t> values);
Tensor i64(Shape shape, std::initializer_list<std::int64_t> values);
Tensor bools(Shape shape, std::initializer_list<bool> values);
Tensor axes(std::initializer_list<std::int32_t> values);  // a vector
Tensor text(const std::vector<std::string>& words);       // a vector
Tensor word(const std::string& one);                      // a scalar
/// Uniform in [low, high), the same for the same seed.
Tensor random_f64(Shape shape, std::uint64_t seed, double low = -1, double high = 1);
Tensor random_i64(Shape shape, std::uint64_t seed, std::int64_t low, std::int64_t high);
/// Element by element conversion among number types and bool.
Tensor converted(const Tensor& tensor, DType dtype);
/// Any number or bool as double.
std::vector<double> to_doubles(const Tensor& tensor);
std::vector<std::string> to_strings(const Tensor& tensor);

}  // namespace braid::testing
