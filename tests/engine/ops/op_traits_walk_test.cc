// Walks the op registry and holds what every op says of itself (engine/ir/op_traits.h) against its kernel: an
// op that leaves something unsaid fails here, and so does one that says what is not so.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>

#include "engine/ir/formula.h"
#include "tests/engine/ops/op_runner.h"

namespace braid::testing {
namespace {

template <class Check>
void walk_all(Check check) {
  for (const OpDef* def : OpRegistry::global().all())
    for (const OpCase& c : all_op_cases().of(def->name)) {
      SCOPED_TRACE(fmt::format("[{}] case '{}'", def->name, c.label));
      try {
        check(*def, c);
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    }
}

TEST(OpTraitsWalk, NoOpLeavesAnythingUnsaid) {
  for (const OpDef* def : OpRegistry::global().all())
    EXPECT_EQ(missing_traits(*def), "") << "[" << def->name << "] says too little (engine/ir/op_traits.h)";
}

TEST(OpTraitsWalk, EveryOutputHasAName) {
  walk_all([](const OpDef& def, const OpCase& c) {
    const std::vector<OutputName>& names = *def.traits.outputs;
    const bool is_list =
        std::any_of(names.begin(), names.end(), [](const OutputName& name) { return !name.list.empty(); });
    const CaseGraph g = make_case_graph(def, c);
    EXPECT_TRUE(is_list || g.graph.node(g.node).outputs.size() == names.size())
        << g.graph.node(g.node).outputs.size() << " outputs, " << names.size() << " names";
  });
}

TEST(OpTraitsWalk, TypeAttributesAreOfInputs) {
  for (const OpDef* def : OpRegistry::global().all())
    for (const TypeAttr& type : *def->traits.type_attributes)
      EXPECT_TRUE(type.input < 1 || def->max_inputs < 0 || type.input < def->max_inputs) << def->name;
}

bool is_formula_type(const Tensor& t) { return t.dtype() == DType::Float64 || t.dtype() == DType::Bool; }

/// The element of a tensor at the place of element `at` of `out`, to whose shape it broadcasts.
std::size_t broadcast_place(const Shape& shape, const Shape& out, std::int64_t at) {
  std::int64_t place = 0, stride = 1;
  for (int back = 1; back <= out.rank(); ++back) {
    const std::int64_t size = out[out.rank() - back], index = at % size;
    at /= size;
    if (back > shape.rank()) continue;
    const std::int64_t own = shape[shape.rank() - back];
    place += own == 1 ? 0 : index * stride;
    stride *= own;
  }
  return static_cast<std::size_t>(place);
}

/// A case's operands, an element of the output at a time.
class FormulaCase {
 public:
  FormulaCase(const OpDef& def, const OpCase& c) : traits_(def.traits) {
    output_ = run_case(def, c).at(0);
    results_ = to_doubles(output_);
    for (const Tensor& input : c.inputs) {
      inputs_.push_back(to_doubles(input));
      shapes_.push_back(input.shape());
    }
    for (const Formula::Parameter& parameter : traits_.formula.parameters)
      attributes_[std::string(parameter.attr)] =
          c.attrs.get<double>(std::string(parameter.attr), parameter.fallback);
  }

  std::int64_t size() const { return output_.elements(); }
  double result(std::int64_t i) const { return results_[static_cast<std::size_t>(i)]; }
  std::vector<double> operands(std::int64_t i) const {
    std::vector<double> values;
    for (std::size_t k = 0; k < inputs_.size(); ++k)
      values.push_back(inputs_[k][broadcast_place(shapes_[k], output_.shape(), i)]);
    return values;
  }
  double evaluate(const Expression& formula, const std::vector<double>& operands, double result = 0) const {
    return formula.evaluate(operands, attributes_, result);
  }

 private:
  const OpTraits& traits_;
  Tensor output_;
  std::vector<double> results_;
  std::vector<std::vector<double>> inputs_;
  std::vector<Shape> shapes_;
  std::map<std::string, double> attributes_;
};

bool has_formula(const OpDef& def, const OpCase& c) {
  return !def.traits.formula.value.empty() && std::all_of(c.inputs.begin(), c.inputs.end(), is_formula_type);
}

TEST(OpTraitsWalk, FormulasAgreeWithKernels) {
  std::set<std::string> compared;
  walk_all([&](const OpDef& def, const OpCase& c) {
    if (!has_formula(def, c)) return;
    const Expression formula = Expression::parse(def.traits.formula.value);
    EXPECT_LE(formula.operands(), static_cast<int>(c.inputs.size()));
    const FormulaCase values(def, c);
    for (std::int64_t i = 0; i < values.size(); ++i) {
      const double expected = values.evaluate(formula, values.operands(i)), actual = values.result(i);
      const bool same = expected == actual || (std::isnan(expected) && std::isnan(actual));
      ASSERT_TRUE(same || std::abs(expected - actual) <= 1e-10 * (1 + std::abs(expected)))
          << "element " << i << ": the formula gives " << expected << ", the kernel " << actual;
      compared.insert(def.name);
    }
  });
  for (const OpDef* def : OpRegistry::global().all())
    EXPECT_TRUE(def->traits.formula.value.empty() || compared.contains(def->name)) << def->name;
}

/// By differences of that step, on both sides; nothing at a kink.
std::optional<double> difference(const FormulaCase& values, const Expression& formula,
                                 const std::vector<double>& at, std::size_t k, double step) {
  std::vector<double> low = at, high = at;
  low[k] -= step;
  high[k] += step;
  const double middle = values.evaluate(formula, at);
  const double left = (middle - values.evaluate(formula, low)) / step;
  const double right = (values.evaluate(formula, high) - middle) / step;
  if (std::abs(left - right) > 1e-2 * (1 + std::abs(left) + std::abs(right))) return std::nullopt;
  return (left + right) / 2;
}

/// The slope at `at` along operand `k` by central differences; nothing at a jump or a kink. At a jump both
/// sides agree, and the shorter the step the steeper they are.
std::optional<double> difference(const FormulaCase& values, const Expression& formula,
                                 const std::vector<double>& at, std::size_t k) {
  const double step = 1e-6 * std::max(1.0, std::abs(at[k]));
  const auto slope = difference(values, formula, at, k, step);
  const auto longer = difference(values, formula, at, k, 2 * step);
  if (!slope || !longer || std::abs(*slope - *longer) > 0.1 * (1 + std::abs(*slope))) return std::nullopt;
  return slope;
}

TEST(OpTraitsWalk, SlopesMatchCentralDifferences) {
  std::set<std::string> compared;
  walk_all([&](const OpDef& def, const OpCase& c) {
    if (!has_formula(def, c) || !def.gradient || !c.numeric_gradient) return;
    const Expression formula = Expression::parse(def.traits.formula.value);
    ASSERT_EQ(def.traits.formula.slopes.size(), c.inputs.size());
    const FormulaCase values(def, c);
    for (std::size_t k = 0; k < c.inputs.size(); ++k) {
      const Expression slope = Expression::parse(def.traits.formula.slopes[k]);
      if (c.inputs[k].dtype() == DType::Bool) continue;
      for (std::int64_t i = 0; i < std::min<std::int64_t>(values.size(), 200); ++i) {
        const std::vector<double> at = values.operands(i);
        const std::optional<double> expected = difference(values, formula, at, k);
        if (!expected) continue;
        const double actual = values.evaluate(slope, at, values.result(i));
        ASSERT_LE(std::abs(*expected - actual), 1e-5 * (1 + std::abs(*expected)))
            << "operand " << k << " of element " << i << ", which is " << at[k];
        compared.insert(def.name);
      }
    }
  });
  for (const OpDef* def : OpRegistry::global().all()) {
    const auto& slopes = def->traits.formula.slopes;
    const bool is_flat =
        std::all_of(slopes.begin(), slopes.end(), [](std::string_view slope) { return slope == "0"; });
    EXPECT_TRUE(!def->gradient || is_flat || compared.contains(def->name)) << def->name;
  }
}

TEST(OpTraitsWalk, WhatMovesElementsMakesNone) {
  walk_all([](const OpDef& def, const OpCase& c) {
    if (def.traits.elements != Elements::Moves || c.inputs.empty()) return;
    std::set<double> known{0};  // gaps are filled with zeros
    DType data = DType::Invalid;
    for (const Tensor& input : c.inputs) {
      if (input.dtype() == DType::String) return;
      if (input.dtype() == DType::Float64) data = DType::Float64;
      for (const double value : to_doubles(input)) known.insert(value);
    }
    if (data == DType::Invalid) return;
    for (const Tensor& output : run_case(def, c)) {
      if (output.dtype() != data) continue;
      for (const double value : to_doubles(output))
        ASSERT_TRUE(known.contains(value) || std::isnan(value)) << value << " is no element of an input";
    }
  });
}

/// [2, ...] of twice the same.
Tensor twice(const Tensor& tensor) {
  std::vector<std::int64_t> dims(tensor.shape().dims().begin(), tensor.shape().dims().end());
  dims.insert(dims.begin(), 2);
  Tensor both(tensor.dtype(), Shape(std::move(dims)));
  for (const std::size_t lane : {0, 1})
    std::memcpy(both.raw() + lane * tensor.bytes(), tensor.raw(), tensor.bytes());
  return both;
}

TEST(OpTraitsWalk, LanesOfElementwiseOpsHaveTheirOwnBits) {
  walk_all([](const OpDef& def, const OpCase& c) {
    const Batching how = def.traits.batching;
    if (how != Batching::Elementwise && how != Batching::Broadcasting) return;
    const auto expected = run_case(def, c);
    // As horizontal fusion asks for: one output, and operands of its type and shape.
    const Tensor& lane = expected.at(0);
    const bool alike = std::all_of(c.inputs.begin(), c.inputs.end(), [&](const Tensor& input) {
      return input.dtype() == lane.dtype() && input.shape() == lane.shape();
    });
    if (!alike || expected.size() != 1 || lane.elements() == 0) return;
    OpCase both = c;
    for (Tensor& input : both.inputs) input = twice(input);
    const Tensor lanes = run_case(def, both).at(0);
    ASSERT_EQ(lanes.bytes(), 2 * lane.bytes());
    for (const std::size_t i : {0, 1})
      EXPECT_EQ(std::memcmp(lanes.raw() + i * lane.bytes(), lane.raw(), lane.bytes()), 0) << "lane " << i;
  });
}

}  // namespace
}  // namespace braid::testing
