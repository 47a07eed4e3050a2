// Walks the op registry: every op is held against its cases (op_cases.h). A new op without cases fails here.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <set>

#include "tests/engine/ops/gradient_check.h"
#include "tests/engine/ops/op_runner.h"

namespace braid::testing {
namespace {

// Ops that mean nothing alone: they need a feed, services or a program, and are tested with those.
// Ops that make or take apart strings have no kernels (text_ops_test.cc), nor have those of sparse matrices
// (sparse_ops_test.cc) and tables (lookup_table_test.cc); those of checkpoints need files
// (save_restore_test.cc).
const std::set<std::string> kTestedElsewhere = {"Placeholder",
                                                "VarHandleOp",
                                                "AsString",
                                                "StringJoin",
                                                "StringSplit",
                                                "StringSplitV2",
                                                "ReadFile",
                                                "DecodeCSV",
                                                "ShardedFilename",
                                                "SaveV2",
                                                "RestoreV2",
                                                "MergeV2Checkpoints",
                                                "ParseExample",
                                                "ParseExampleV2",
                                                "ParseSingleExample",
                                                "StringLower",
                                                "StringUpper",
                                                "StringStrip",
                                                "StringLength",
                                                "SparseReshape",
                                                "SparseFillEmptyRows",
                                                "SparseCross",
                                                "DenseBincount",
                                                "braid.LookupTableFind",
                                                "braid.TableOfFile",
                                                "SparseReorder",
                                                "SparseConcat",
                                                "SparseSlice",
                                                "SparseReduceSum",
                                                "SparseReduceMax",
                                                "SparseDenseCwiseAdd",
                                                "SparseDenseCwiseMul",
                                                "SparseDenseCwiseDiv",
                                                "SparseTensorDenseAdd",
                                                "SparseSoftmax",
                                                "RaggedTensorToTensor",
                                                "RaggedTensorToSparse",
                                                "RaggedRange"};

std::vector<const OpDef*> walked_ops() {
  std::vector<const OpDef*> ops = OpRegistry::global().all();
  std::erase_if(ops, [](const OpDef* def) { return kTestedElsewhere.contains(def->name); });
  return ops;
}

/// Calls check(def, case) for every case of every op; failures name both.
template <class Check>
void walk(Check check) {
  for (const OpDef* def : walked_ops())
    for (const OpCase& c : all_op_cases().of(def->name)) {
      SCOPED_TRACE(fmt::format("[{}] case '{}'", def->name, c.label));
      try {
        check(*def, c);
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    }
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.bytes() == b.bytes() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

TEST(RegistryWalk, EveryOpHasCases) {
  for (const OpDef* def : walked_ops())
    EXPECT_FALSE(all_op_cases().of(def->name).empty()) << "no cases in tests/engine/ops for " << def->name;
}

TEST(RegistryWalk, GradientsMatchCentralDifferences) {
  walk([](const OpDef& def, const OpCase& c) {
    if (def.gradient && c.numeric_gradient) {
      EXPECT_EQ(check_gradient(def, c), "");
    }
  });
}

TEST(RegistryWalk, OutputsAreTheSameBitsForAnyPoolWidth) {
  walk([](const OpDef& def, const OpCase& c) {
    const auto expected = run_case(def, c, 1);
    for (int width : {2, 3}) {
      const auto actual = run_case(def, c, width);
      for (std::size_t o = 0; o < expected.size(); ++o)
        EXPECT_TRUE(same_bits(expected[o], actual[o])) << "output " << o << " width " << width;
    }
  });
}

TEST(RegistryWalk, Float32AgreesWithFloat64) {
  walk([](const OpDef& def, const OpCase& c) {
    const bool wide = std::any_of(c.inputs.begin(), c.inputs.end(),
                                  [](const Tensor& t) { return t.dtype() == DType::Float64; });
    if (!wide || c.float32_tolerance == 0) return;
    OpCase narrow = c;
    for (Tensor& t : narrow.inputs)
      if (t.dtype() == DType::Float64) t = converted(t, DType::Float32);
    for (Tensor& t : narrow.inputs) ASSERT_NE(t.dtype(), DType::Float64);
    OpCase rounded = c;  // the same values in both
    for (std::size_t i = 0; i < c.inputs.size(); ++i)
      if (c.inputs[i].dtype() == DType::Float64)
        rounded.inputs[i] = converted(narrow.inputs[i], DType::Float64);
    const auto expected = run_case(def, rounded), actual = run_case(def, narrow);
    for (std::size_t o = 0; o < expected.size(); ++o) {
      const auto e = to_doubles(expected[o]), a = to_doubles(actual[o]);
      ASSERT_EQ(e.size(), a.size());
      for (std::size_t k = 0; k < e.size(); ++k) {
        const bool same = e[k] == a[k] || (std::isnan(e[k]) && std::isnan(a[k]));
        EXPECT_TRUE(same || std::abs(e[k] - a[k]) <= c.float32_tolerance * (1 + std::abs(e[k])))
            << "output " << o << " element " << k << ": " << a[k] << " against " << e[k];
      }
    }
  });
}

/// What the shape rule says when it sees `shapes` (and compile-time values only if `with_values`).
std::vector<OutputInfo> inferred(const CaseGraph& g, const std::vector<Shape>& shapes, bool with_values) {
  const Node& node = g.graph.node(g.node);
  std::vector<OutputInfo> inputs;
  std::vector<const Tensor*> values;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    inputs.push_back({g.graph.info(g.inputs[i]).dtype, shapes[i]});
    values.push_back(with_values ? g.graph.known_value(g.inputs[i]) : nullptr);
  }
  InferContext context(node, inputs, values);
  node.op->infer(context);
  return context.take_outputs();
}

/// The shapes of `node`'s inputs with each dimension unknown in turn, with all dimensions unknown, and
/// without ranks. Handles keep theirs: a variable's shape is always known.
std::vector<std::vector<Shape>> weakened(const CaseGraph& g) {
  std::vector<Shape> shapes;
  for (const ValueRef& input : g.inputs) shapes.push_back(g.graph.info(input).shape);
  std::vector<std::vector<Shape>> variants;
  std::vector<Shape> no_dims = shapes, no_ranks = shapes;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    if (g.graph.info(g.inputs[i]).dtype == DType::Resource) continue;
    no_ranks[i] = Shape::unknown_rank();
    for (int d = 0; d < shapes[i].rank(); ++d) {
      variants.push_back(shapes);
      variants.back()[i].set_dim(d, Shape::kUnknown);
      no_dims[i].set_dim(d, Shape::kUnknown);
    }
    variants.push_back(shapes);
    variants.back()[i] = Shape::unknown_rank();
  }
  variants.push_back(no_dims);
  variants.push_back(no_ranks);
  return variants;
}

TEST(RegistryWalk, ShapeRuleAgreesWithOutputs) {
  walk([](const OpDef& def, const OpCase& c) {
    const CaseGraph g = make_case_graph(def, c);
    const Node& node = g.graph.node(g.node);
    for (const OutputInfo& out : node.outputs)
      EXPECT_TRUE(out.dtype == DType::Resource || out.shape.is_static())
          << "static inputs give " << out.shape.to_string();
    for (const auto& variant : weakened(g))
      for (bool with_values : {true, false}) {
        const auto weak = inferred(g, variant, with_values);
        ASSERT_EQ(weak.size(), node.outputs.size());
        for (std::size_t o = 0; o < weak.size(); ++o) {
          Shape merged;
          EXPECT_EQ(weak[o].dtype, node.outputs[o].dtype);
          EXPECT_TRUE(merge_shapes(weak[o].shape, node.outputs[o].shape, merged) &&
                      merged == node.outputs[o].shape)
              << "from weaker shapes " << weak[o].shape.to_string() << ", from static ones "
              << node.outputs[o].shape.to_string();
        }
      }
  });
}

TEST(RegistryWalk, DeclaredInPlacePairsKeepTheResult) {
  walk([](const OpDef& def, const OpCase& c) {
    const auto expected = run_case(def, c);
    for (const auto& pair : def.in_place) {
      if (static_cast<std::size_t>(pair.first) >= expected.size())
        continue;  // of a list that is shorter here
      CaseGraph g = make_case_graph(def, c);
      g.execution.in_place = pair;
      const auto actual = evaluate(g.graph, g.execution, g.outputs());
      for (std::size_t o = 0; o < expected.size(); ++o)
        EXPECT_TRUE(same_bits(expected[o], actual[o]))
            << "output " << pair.first << " in the memory of input " << pair.second;
    }
  });
}

TEST(RegistryWalk, CostIsFiniteAndNotNegative) {
  walk([](const OpDef& def, const OpCase& c) {
    const CaseGraph g = make_case_graph(def, c);
    const Node& node = g.graph.node(g.node);
    std::vector<OutputInfo> inputs;
    for (const ValueRef& input : g.inputs) inputs.push_back(g.graph.info(input));
    const std::vector<const Tensor*> values(inputs.size());
    if (!def.cost) return;
    const Cost cost = def.cost(InferContext(node, inputs, values), node.outputs);
    EXPECT_TRUE(std::isfinite(cost.flops) && cost.flops >= 0);
    EXPECT_TRUE(std::isfinite(cost.bytes) && cost.bytes >= 0);
  });
}

TEST(RegistryWalk, EveryCaseNamesAnOp) {
  for (const auto& [op, cases] : all_op_cases().all())
    EXPECT_NE(OpRegistry::global().find(op), nullptr) << "cases for unknown op " << op;
}

TEST(RegistryWalk, OpsWithoutGradientSayWhy) {
  for (const OpDef* def : OpRegistry::global().all()) {
    if (def->gradient) continue;
    EXPECT_FALSE(def->no_gradient_reason.empty()) << def->name;
    std::printf("not differentiable: %-28s %s\n", def->name.c_str(), def->no_gradient_reason.c_str());
  }
}

}  // namespace
}  // namespace braid::testing
