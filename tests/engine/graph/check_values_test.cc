// CompileOptions::check_numerics: the step ends at the node that made the first NaN or infinity.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "engine/compile/compile.h"
#include "tests/engine/testing/test_ops.h"

namespace braid::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// log(x) * w - 1, all of it checked.
struct CheckedGraph {
  TestGraph g;
  Runtime runtime{{}};

  CheckedGraph() {
    const ValueRef x = g.add("Placeholder", {}, {{"dtype", DType::Float32}, {"shape", Shape{3}}}, "x");
    const ValueRef w =
        g.add("VarHandleOp", {}, {{"dtype", DType::Float32}, {"shape", Shape{3}}, {"shared_name", "w"}}, "w");
    const ValueRef read = g.add("ReadVariableOp", {w}, {{"dtype", DType::Float32}}, "read");
    const ValueRef log = g.add("Log", {x}, {}, "log");
    const ValueRef product = g.add("Mul", {log, read}, {}, "product");
    g.add("Sub", {product, log}, {}, "end");
  }

  std::vector<float> run(std::vector<float> x, std::vector<float> w, bool check, int streams = 1) {
    CompileOptions options;
    options.check_numerics = check;
    options.streams.count = streams;
    Instance instance(compile(g.graph, {{{"x", DType::Float32, Shape{3}}}, {"end"}, {}}, options), runtime);
    runtime.variables().write("w", Tensor::from<float>({3}, w));
    const Tensor y = instance.run(request(0, {Tensor::from<float>({3}, x)}), soon()).fetches[0];
    return {y.data<float>().begin(), y.data<float>().end()};
  }

  std::string error(std::vector<float> x, std::vector<float> w) {
    try {
      run(std::move(x), std::move(w), true);
    } catch (const Error& error) {
      EXPECT_EQ(exit_code_for(error.code()), kExitFailed);
      return error.message();
    }
    return "no error";
  }
};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(CheckValuesTest, FiniteStepsAreAsWithoutChecks) {
  CheckedGraph graph;
  const std::vector<float> x{1, 2, 3}, w{4, 5, 6};
  EXPECT_EQ(graph.run(x, w, true), graph.run(x, w, false));
  EXPECT_EQ(graph.run(x, w, true, 3), graph.run(x, w, false));
  EXPECT_TRUE(std::isnan(graph.run({1, -2, 3}, w, false)[1]));
}

TEST(CheckValuesTest, TheNodeThatMadeTheFirstOneIsNamed) {
  CheckedGraph graph;
  EXPECT_THAT(graph.error({1, -2, 3}, {1, 1, 1}),
              AllOf(HasSubstr("the output of [Log] node 'log'"), HasSubstr("element 1 is NaN")));
  EXPECT_THAT(graph.error({1, 2, 0}, {1, 1, 1}),
              AllOf(HasSubstr("[Log] node 'log'"), HasSubstr("element 2 is infinite")));
  EXPECT_THAT(graph.error({10, 10, 10}, {3e38F, 1, 1}),
              AllOf(HasSubstr("[Mul] node 'product'"), HasSubstr("element 0 is infinite")));
}

TEST(CheckValuesTest, FeedsAndVariablesAreCheckedToo) {
  CheckedGraph graph;
  EXPECT_THAT(graph.error({1, kNan, 3}, {1, 1, 1}), HasSubstr("what is fed to [Placeholder] node 'x'"));
  EXPECT_THAT(graph.error({1, 2, 3}, {kNan, 1, 1}), HasSubstr("[ReadVariableOp] node 'read'"));
}

}  // namespace
}  // namespace braid::testing
