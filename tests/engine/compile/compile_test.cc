// What is left of a graph, how quickly it compiles, what compile() refuses, and the table of its passes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "engine/compile/passes.h"
#include "engine/exec/plan_report.h"
#include "tests/engine/testing/test_ops.h"
#include "tests/support/message_of.h"

namespace braid::testing {
namespace {

TEST(CompileTest, LargeConstantsFoldButWhatIsMadeOfLittleStaysANode) {
  TestGraph g;
  constexpr std::int64_t kElements = 20000;  // 160 KB, more than shape inference folds
  const std::vector<std::int64_t> ones(kElements, 1);
  const ValueRef a = g.constant(ones), b = g.constant(ones);
  const ValueRef sum = g.add("AddN", {a, b}, {}, "sum");
  const ValueRef twice = g.add("AddN", {sum, sum}, {}, "twice");
  const ValueRef zeros = g.add("ZerosLike", {a}, {}, "zeros");
  g.mix({g.feed("x", 4), twice, zeros}, 4, "end");
  const auto p = compile_test(g, {"end", "twice"}, {}, 1, StreamPolicy::None, 2, kX);
  EXPECT_LT(op_named(*p, "sum"), 0);
  EXPECT_LT(op_named(*p, "twice"), 0);
  EXPECT_GE(op_named(*p, "zeros"), 0);
  Runtime runtime({});
  Instance instance(p, runtime);
  const auto fetched = instance.run(request(0, {test_tensor(4, 0)}), soon()).fetches[1];
  EXPECT_EQ(fetched.data<std::int64_t>()[kElements - 1], 4);
  // A value that is fed is not folded, and neither is what follows from it.
  const auto fed =
      compile_test(g, {"twice"}, {}, 1, StreamPolicy::None, 2, {{"sum", DType::Int64, Shape{kElements}}});
  EXPECT_GE(op_named(*fed, "twice"), 0);
}

TEST(CompileTest, ConstantsFoldAndTheirControlEdgesStay) {
  TestGraph g;
  const ValueRef a = g.constant({1, 2, 3}), b = g.constant({10, 20, 30});
  const ValueRef before = g.mix({g.feed("x", 4)}, 4, "before");
  const ValueRef sum = g.add("AddN", {a, b}, {}, "sum");
  g.control(before, sum);
  g.mix({sum}, 4, "end");
  const auto p = compile_test(g, {"end", "sum"}, {}, 1, StreamPolicy::None, 2, kX);
  EXPECT_LT(op_named(*p, "sum"), 0);
  EXPECT_EQ(p->ops[static_cast<std::size_t>(op_named(*p, "end"))].deps,
            std::vector<int>{op_named(*p, "before")});
  Runtime runtime({});
  Instance instance(p, runtime);
  const auto fetched = instance.run(request(0, {test_tensor(4, 0)}), soon()).fetches[1];
  EXPECT_EQ(
      std::vector<std::int64_t>(fetched.data<std::int64_t>().begin(), fetched.data<std::int64_t>().end()),
      (std::vector<std::int64_t>{11, 22, 33}));
}

TEST(CompileTest, EqualPureNodesMergeUnlessTheUserPutThemApart) {
  for (const bool apart : {false, true}) {
    TestGraph g;
    const ValueRef x = g.feed("x", 4);
    const ValueRef a = g.add("AddN", {x, x}, {}, "a"), b = g.add("AddN", {x, x}, {}, "b");
    if (apart) g.node(b).stream = 1;
    g.mix({a, b}, 1, "end");
    const auto p = compile_test(g, {"end"}, {}, 2, StreamPolicy::User, 2, kX);
    EXPECT_EQ(op_named(*p, "b") >= 0, apart);
  }
}

TEST(CompileTest, ASumThatUndoesNothingIsLeftOut) {
  TestGraph g;
  const ValueRef x = g.feed("x", 8), z = g.feed("z", 8), small = g.feed("small", 1);
  const ValueRef same = g.add("braid.ReduceToShapeOf", {x, x}, {}, "same");
  const ValueRef real = g.add("braid.ReduceToShapeOf", {x, small}, {}, "real");
  const ValueRef fetched = g.add("braid.ReduceToShapeOf", {z, x}, {}, "fetched");
  const ValueRef y = g.mix({same, real}, 8, "y");
  const auto p = compile_test(
      g, {g.name(y), g.name(fetched)}, {}, 1, StreamPolicy::None, 1,
      {{"x", DType::Int64, Shape{8}}, {"z", DType::Int64, Shape{8}}, {"small", DType::Int64, Shape{1}}});
  EXPECT_EQ(op_named(*p, "same"), -1);
  EXPECT_GE(op_named(*p, "real"), 0);
  EXPECT_GE(op_named(*p, "fetched"), 0) << "somebody asked for this very value";
}

TEST(CompileTest, OnlyWhatIsAskedForRuns) {
  TestGraph g;
  const ValueRef x = g.feed("x", 4);
  g.mix({x}, 4, "wanted");
  g.mix({x}, 4, "unwanted");
  EXPECT_EQ(compile_test(g, {"wanted"}, {}, 1, StreamPolicy::None, 2, kX)->ops.size(), 1U);
}

TEST(CompileTest, AComputedValueMayBeFed) {
  TestGraph g;
  const ValueRef a = g.mix({g.feed("x", 4)}, 4, "a");
  g.mix({a}, 4, "b");
  const auto p = compile_test(g, {"b"}, {}, 1, StreamPolicy::None, 2, {{"a", DType::Int64, Shape{4}}});
  EXPECT_EQ(p->ops.size(), 1U);
}

TEST(CompileTest, BadRequestsNameWhatIsWrong) {
  TestGraph g;
  g.mix({g.feed("x", 4)}, 4, "y");
  EXPECT_NE(message_of([&] { compile_test(g, {"z"}, {}, 1, StreamPolicy::None); }).find("'z'"),
            std::string::npos);
  EXPECT_EQ(message_of([&] { compile_test(g, {"y"}, {}, 1, StreamPolicy::None); }),
            "[Placeholder] node 'x': it is needed but not fed");
  EXPECT_NE(message_of([&] {
              compile_test(g, {"y"}, {}, 1, StreamPolicy::None, 2, {{"x", DType::Float32, Shape{4}}});
            }).find("'x'"),
            std::string::npos);
  EXPECT_EQ(message_of([&] { compile_test(g, {"y"}, {}, 0, StreamPolicy::None, 2, kX); }),
            "a program needs at least one compute stream, got 0");
  EXPECT_EQ(message_of([&] { compile_test(g, {"y"}, {}, 1, StreamPolicy::None, 0, kX); }),
            "at least one step must be in flight, got 0");
}

TEST(CompileTest, AWideJoinDoesNotMultiplyEdges) {
  TestGraph g;
  const ValueRef x = g.feed("x", 4), join = g.add("NoOp", {}, {}, "join");
  std::vector<ValueRef> after;
  for (int i = 0; i < 300; ++i) g.control(g.mix({x}, 1), join);
  for (int i = 0; i < 300; ++i) {
    after.push_back(g.mix({x}, 1));
    g.control(join, after.back());
  }
  g.mix(after, 1, "end");
  const auto p = compile_test(g, {"end"}, {}, 4, StreamPolicy::Cost, 2, kX);
  std::size_t edges = 0;
  for (const ProgramOp& op : p->ops) edges += op.deps.size();
  EXPECT_LT(edges, 1500U);
  EXPECT_GE(op_named(*p, "join"), 0);
}

/// 8 towers of `depth` layers with backward nodes and updates: about 24 nodes a layer.
TestGraph training_graph(int depth) {
  TestGraph g;
  const ValueRef x = g.feed("x", 4);
  std::vector<ValueRef> tops;
  std::vector<std::vector<ValueRef>> layers(8), weights(8);
  for (std::size_t tower = 0; tower < 8; ++tower) {
    ValueRef h = x;
    for (int d = 0; d < depth; ++d) {
      weights[tower].push_back(g.variable("w" + std::to_string(tower) + "_" + std::to_string(d), 16));
      h = g.mix({h, g.read(weights[tower].back())}, 64);
      layers[tower].push_back(h);
    }
    tops.push_back(h);
  }
  const ValueRef loss = g.mix(tops, 1, "loss");
  for (std::size_t tower = 0; tower < 8; ++tower) {
    ValueRef back = loss;
    for (std::size_t d = static_cast<std::size_t>(depth); d-- > 0;) {
      back = g.mix({back, layers[tower][d]}, 64);
      g.add("test.Update", {weights[tower][d], back}, {},
            "update" + std::to_string(tower) + "_" + std::to_string(d));
    }
  }
  return g;
}

TEST(CompileTest, S8_TenThousandNodesCompileInTime) {
  const int depth = 10000 / 24;
  const TestGraph g = training_graph(depth);
  std::vector<std::string> targets;
  for (int tower = 0; tower < 8; ++tower)
    for (int d = 0; d < depth; ++d)
      targets.push_back("update" + std::to_string(tower) + "_" + std::to_string(d));
  for (const auto policy : {StreamPolicy::None, StreamPolicy::Auto}) {
    const std::clock_t begin = std::clock();  // of the process: others may be busy
    const auto p = compile_test(g, {"loss"}, targets, 8, policy, 2, kX);
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    EXPECT_GE(p->ops.size(), 9900U);
    RecordProperty(std::string(stream_policy_name(policy)), std::to_string(seconds));
    EXPECT_LT(seconds, 60) << "the aim is 1 s in a Release build; sanitizers take ten times as long";
  }
}

TEST(CompileTest, S8_FullTakesFiveThousandNodesAndSaysWhenThereAreMore) {
  const TestGraph g = training_graph(5100 / 16 / 8 * 8);
  const auto p = compile_test(g, {"loss"}, {}, 4, StreamPolicy::Full, 2, kX);
  EXPECT_EQ(p->policy, StreamPolicy::Full);
  const TestGraph large = training_graph(5100 / 8);
  const auto q = compile_test(large, {"loss"}, {}, 4, StreamPolicy::Full, 2, kX);
  EXPECT_EQ(q->policy, StreamPolicy::Cost);
  EXPECT_NE(plan_report(*q).find("FULL takes at most 5000 ops"), std::string::npos);
}

TEST(PassTableTest, TheDocumentIsPrintedFromTheTable) {
  std::ifstream in(BRAID_SOURCE_DIR "/docs/design/passes.md");
  const std::string document{std::istreambuf_iterator<char>(in), {}};
  EXPECT_THAT(document, ::testing::HasSubstr(passes_text(true)))
      << "write the output of `braid graph passes --markdown` into docs/design/passes.md";
}

TEST(PassTableTest, NamesAreUniqueAndEveryPassSaysWhatItDoes) {
  std::set<std::string_view> names;
  for (const Pass& pass : passes()) {
    EXPECT_TRUE(names.insert(pass.name).second) << pass.name;
    EXPECT_FALSE(pass.does.empty()) << pass.name;
    EXPECT_TRUE(std::filesystem::is_directory(BRAID_SOURCE_DIR "/engine/" + std::string(pass.folder)))
        << pass.name;
  }
}

}  // namespace
}  // namespace braid::testing
