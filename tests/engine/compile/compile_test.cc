// Events, the order of variables, folding, and what compile() refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "engine/compile/passes.h"
#include "engine/exec/plan_report.h"
#include "engine/exec/program_cache.h"
#include "tests/base/message_of.h"
#include "tests/engine/testing/interpreter.h"
#include "tests/engine/testing/test_ops.h"

namespace braid::testing {
namespace {

// -------------------------------------------------------------------------------------------------------
// events

TEST(EventsTest, S6_AWaitThatOthersImplyIsNotIssued) {
  // a (0) -> b (1) -> c (0), and a -> c2 (1) after b: only a -> b and b -> c need events.
  TestGraph g;
  const ValueRef x = g.feed("x", 4);
  const ValueRef a = on(g, 0, {x}, "a");
  const ValueRef b = on(g, 1, {a}, "b");
  const ValueRef b2 = on(g, 1, {a, b}, "b2");
  on(g, 0, {a, b, b2}, "c");
  const auto p = compile_test(g, {"c"}, {}, 2, StreamPolicy::User, 1, kX);
  EXPECT_EQ(p->stats.waits_issued, 2);   // b for a, c for b2
  EXPECT_EQ(p->stats.waits_removed, 2);  // b2 for a, c for b
  EXPECT_EQ(p->stats.events, 2);
}

TEST(EventsTest, S6_OrderThroughAThirdStreamCounts) {
  TestGraph g;
  const ValueRef a = on(g, 0, {g.feed("x", 4)}, "a");
  const ValueRef b = on(g, 1, {a}, "b");
  on(g, 2, {a, b}, "c");
  const auto p = compile_test(g, {"c"}, {}, 3, StreamPolicy::User, 1, kX);
  EXPECT_EQ(p->stats.waits_issued, 2);
  EXPECT_EQ(p->stats.waits_removed, 1);
}

TEST(EventsTest, S6_AnEdgeBetweenStreamsCopiesNothing) {
  TestGraph g;
  const ValueRef a = on(g, 0, {g.feed("x", 4)}, "a");
  const ValueRef b = on(g, 1, {a}, "b");
  on(g, 2, {b, a}, "c");
  const auto p = compile_test(g, {"c"}, {}, 3, StreamPolicy::User, 2, kX);
  ASSERT_EQ(p->ops.size(), 3U) << "no node for the edge";
  for (const ProgramOp& op : p->ops) {
    EXPECT_EQ(op.kind, OpKind::Kernel);
    for (const Operand& in : op.inputs) {
      if (in.producer >= 0) {
        EXPECT_EQ(in.buffer, p->ops[static_cast<std::size_t>(in.producer)].outputs[0].buffer);
      }
    }
  }
}

TEST(EventsTest, S6_AllWaitsStayWhenAskedFor) {
  TestGraph g;
  const ValueRef a = on(g, 0, {g.feed("x", 4)}, "a");
  const ValueRef b = on(g, 1, {a}, "b");
  on(g, 2, {a, b}, "c");
  CompileOptions options;
  options.streams = {3, StreamPolicy::User, true};
  const auto p = compile(g.graph, {kX, {"c"}, {}}, options);
  EXPECT_EQ(p->stats.waits_issued, 3);
  EXPECT_EQ(p->stats.waits_removed, 0);
}

TEST(EventsTest, S6_AWaitIsForTheProducerNotForItsStreamsTail) {
  // c needs a only; the slow node after a on stream 0 does not hold it up.
  TestGraph g;
  const ValueRef a = on(g, 0, {g.feed("x", 4)}, "a");
  const ValueRef slow = g.add("test.Sleep", {a}, {{"us", std::int64_t{100000}}}, "slow");
  g.node(slow).stream = 0;
  const ValueRef c = on(g, 1, {a}, "c");
  const auto p = compile_test(g, {"c", "slow"}, {}, 2, StreamPolicy::User, 1, kX);
  ASSERT_EQ(p->streams[1].instructions.size(), 2U);
  EXPECT_EQ(p->streams[1].instructions[0], (Instruction{Instruction::Kind::Wait, op_named(*p, "a")}));
  static_cast<void>(c);
}

TEST(EventsTest, AnAsynchronousNodeIsWaitedForOnItsOwnStreamToo) {
  TestGraph g;
  const ValueRef a = g.add("test.Pull", {g.feed("x", 4)}, {}, "a");
  g.add("test.Pull", {a}, {}, "b");
  const auto p = compile_test(g, {"b"}, {}, 1, StreamPolicy::None, 1, kX);
  EXPECT_EQ(p->stats.waits_issued, 1);
}

TEST(IssueOrderTest, APushIsIssuedWhenItsGradientIsReadyNotBehindOneThatIsReadyLater) {
  TestGraph g;
  const ValueRef x = g.feed("x", 4), early = g.mix({x}, 4, "early");
  ValueRef late = x;
  for (int i = 0; i < 3; ++i) late = g.mix({late}, 4, "late" + std::to_string(i));
  g.add("test.Push", {late}, {}, "push_late");
  g.add("test.Push", {early}, {}, "push_early");
  const auto p = compile_test(g, {}, {"push_late", "push_early"}, 1, StreamPolicy::None, 1, kX);
  EXPECT_LT(op_named(*p, "push_early"), op_named(*p, "late2")) << "sent while the rest is computed";
  EXPECT_LT(op_named(*p, "push_early"), op_named(*p, "push_late"));
}

TEST(IssueOrderTest, OnOneStreamWhatPassesAddRunsWhereItIsNeeded) {
  TestGraph g;
  const ValueRef x = g.feed("x", 4);
  const ValueRef gradient = g.mix({x}, 8, "gradient"), other = g.mix({x}, 8, "other");
  const ValueRef user = g.mix({other}, 8, "user"), beside = g.mix({x}, 8, "beside");
  const ValueRef end = g.mix({user, beside}, 8, "end");
  const ValueRef source = g.mix({}, 8, "source");  // written last, as a pass does
  g.node(user).inputs.push_back(source);
  g.add("test.Update", {g.variable("w", 8), gradient}, {}, "update");
  const auto p = compile_test(g, {g.name(end)}, {"update"}, 1, StreamPolicy::None, 1, kX);
  const auto at = [&](const char* name) { return op_named(*p, name); };
  EXPECT_EQ(at("update"), at("gradient") + 1);
  EXPECT_EQ(at("user"), at("source") + 1);
  EXPECT_LT(at("user"), at("beside"));
}

TEST(EventsTest, OneStreamNeedsNoEventsOverSteps) {
  TestGraph g;
  const ValueRef w = g.variable("w", 4);
  const ValueRef h = g.mix({g.feed("x", 4), g.read(w)});
  g.add("test.Update", {w, h}, {}, "update");
  const auto p = compile_test(g, {}, {"update"}, 1, StreamPolicy::None, 2, kX);
  EXPECT_EQ(p->stats.events, 0);
  EXPECT_EQ(p->stats.waits_previous, 0);
}

TEST(EventsTest, OneStepInFlightNeedsNoWaitsOnTheStepBefore) {
  TestGraph g;
  const ValueRef w = g.variable("w", 4);
  const ValueRef h = on(g, 1, {g.feed("x", 4), g.read(w)}, "h");
  const ValueRef update = g.add("test.Update", {w, h}, {}, "update");
  g.node(update).stream = 0;
  EXPECT_EQ(compile_test(g, {}, {"update"}, 2, StreamPolicy::User, 1, kX)->stats.waits_previous, 0);
  EXPECT_GT(compile_test(g, {}, {"update"}, 2, StreamPolicy::User, 2, kX)->stats.waits_previous, 0);
}

// ---------------------------------------------------------------------------------------------- order of
// variables

/// Runs three steps on two streams and on the interpreter.
void expect_interpreters_bits(const TestGraph& g, const std::vector<std::string>& fetches,
                              const std::vector<std::string>& targets) {
  const auto p = compile_test(g, fetches, targets, 2, StreamPolicy::User, 2, kX);
  Runtime runtime({});
  Instance instance(p, runtime);
  Interpreter oracle(g.graph);
  for (std::uint64_t step = 0; step < 3; ++step) {
    const Tensor x = test_tensor(4, step);
    const auto got = instance.run(request(step, {x}), soon()).fetches;
    const auto expected = oracle.run({{"x", x}}, fetches, targets);
    for (std::size_t i = 0; i < fetches.size(); ++i)
      EXPECT_TRUE(same_bytes(got[i], expected[i])) << fetches[i] << " step " << step;
  }
}

TEST(VariableOrderTest, UsersOfAnUnorderedReadPrecedeTheWrite) {
  TestGraph g;
  const ValueRef x = g.feed("x", 4), w = g.variable("w", 4);
  g.add("test.Update", {w, x}, {}, "update");
  const ValueRef view = g.add("Identity", {g.read(w)});
  on(g, 1, {view}, "user");
  const auto p = compile_test(g, {"user"}, {"update"}, 2, StreamPolicy::User, 2, kX);
  const auto& deps = p->ops[static_cast<std::size_t>(op_named(*p, "update"))].deps;
  EXPECT_EQ(deps, std::vector<int>{op_named(*p, "user")});
  expect_interpreters_bits(g, {"user"}, {"update"});
}

TEST(VariableOrderTest, AControlPathPutsTheReadAfterTheWrite) {
  TestGraph g;
  const ValueRef x = g.feed("x", 4), w = g.variable("w", 4);
  const ValueRef update = g.add("test.Update", {w, x}, {}, "update");
  const ValueRef read = g.read(w);
  g.control(update, read);
  on(g, 1, {read}, "user");
  const auto p = compile_test(g, {"user"}, {"update"}, 2, StreamPolicy::User, 2, kX);
  EXPECT_EQ(p->ops[static_cast<std::size_t>(op_named(*p, "user"))].deps,
            std::vector<int>{op_named(*p, "update")});
  expect_interpreters_bits(g, {"user"}, {"update"});
}

TEST(VariableOrderTest, AnOldValueUsedAfterTheWriteIsCopied) {
  TestGraph g;
  const ValueRef x = g.feed("x", 4), w = g.variable("w", 4);
  const ValueRef old = g.read(w);
  const ValueRef update = g.add("test.Update", {w, x}, {}, "update");
  const ValueRef user = on(g, 1, {old}, "user");
  g.control(update, user);  // runs after the write, but its input was read before
  const auto p = compile_test(g, {"user"}, {"update"}, 2, StreamPolicy::User, 2, kX);
  EXPECT_GE(op_named(*p, g.name(old) + "/copy"), 0);
  expect_interpreters_bits(g, {"user"}, {"update"});
}

TEST(VariableOrderTest, AFetchedVariableIsTheValueBeforeTheWrite) {
  TestGraph g;
  const ValueRef x = g.feed("x", 4), w = g.variable("w", 4);
  const ValueRef read = g.read(w);
  g.add("test.Update", {w, x}, {}, "update");
  expect_interpreters_bits(g, {g.name(read)}, {"update"});
}

TEST(VariableOrderTest, TwoReadersInACircleOfWritesAreCopied) {
  // user_a uses a after b was written, user_b uses b after a was written; both read first.
  TestGraph g;
  const ValueRef x = g.feed("x", 4), a = g.variable("a", 4), b = g.variable("b", 4);
  const ValueRef read_a = g.read(a), read_b = g.read(b);
  const ValueRef write_a = g.add("test.Update", {a, x}, {}, "write_a"),
                 write_b = g.add("test.Update", {b, x}, {}, "write_b");
  const ValueRef user_a = on(g, 0, {read_a}, "user_a"), user_b = on(g, 1, {read_b}, "user_b");
  g.control(write_b, user_a);
  g.control(write_a, user_b);
  expect_interpreters_bits(g, {"user_a", "user_b"}, {"write_a", "write_b"});
}

TEST(VariableOrderTest, UnorderedWritesAreRefusedByName) {
  TestGraph g;
  const ValueRef x = g.feed("x", 4), w = g.variable("w", 4);
  g.add("test.Update", {w, x}, {}, "first");
  g.add("test.Update", {w, x}, {}, "second");
  EXPECT_EQ(message_of([&] {
              compile_test(g, {}, {"first", "second"}, 2, StreamPolicy::User, 2, kX);
            }),
            "[test.Update] node 'first' and [test.Update] node 'second' both write variable 'w' and nothing "
            "orders them; "
            "add a control dependency");
}

// ------------------------------------------------------------------------------------------------- other
// passes

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

TEST(PlanTest, TheReportHasStreamsTotalsAndTheCriticalPath) {
  TestGraph g;
  const ValueRef a = on(g, 0, {g.feed("x", 4)}, "a");
  on(g, 1, {a}, "b");
  const auto p = compile_test(g, {"b"}, {}, 2, StreamPolicy::User, 2, kX);
  const std::string text = plan_report(*p);
  for (const char* part : {"2 nodes on 2 compute streams", "1 waits issued, 0 removed", "critical path",
                           "compute1", "wait for 'a' on compute0", " us  test.Mix 'b'"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(PlanTest, TheHashTellsPlansApart) {
  TestGraph g;
  const ValueRef a = on(g, 0, {g.feed("x", 4)}, "a");
  on(g, 1, {a}, "b");
  const auto hash = [&](int streams, StreamPolicy policy) {
    return plan_hash(*compile_test(g, {"b"}, {}, streams, policy, 2, kX));
  };
  EXPECT_EQ(hash(2, StreamPolicy::User), hash(2, StreamPolicy::User));
  EXPECT_NE(hash(2, StreamPolicy::User), hash(2, StreamPolicy::None));
  EXPECT_NE(hash(2, StreamPolicy::User), hash(3, StreamPolicy::User));
}

TEST(ProgramCacheTest, OneProgramForEachSignatureAndTheOldestGoes) {
  TestGraph g;
  const ValueRef x = g.add("Placeholder", {}, {{"dtype", DType::Int64}, {"shape", Shape{-1}}}, "x");
  const ValueRef w = g.variable("w", 4);
  g.add("test.Update", {w, x}, {}, "update");
  Runtime runtime({});
  ProgramCache cache(g.graph, {}, {"update"}, CompileOptions{}, runtime, 2);
  const auto feeds = [](std::int64_t n) { return std::vector<FeedSpec>{{"x", DType::Int64, Shape{n}}}; };
  const auto run = [&](std::int64_t n) {
    cache.instance(feeds(n))->run(request(0, {test_tensor(n, 1)}), soon());
  };
  for (const std::int64_t n : {8, 8, 3, 8, 3}) run(n);
  EXPECT_EQ(cache.compiled(), 2U);
  const auto held = cache.instance(feeds(3));
  run(5);  // 8 goes
  EXPECT_EQ(cache.size(), 2U);
  EXPECT_EQ(cache.instance(feeds(3)), held);
  run(8);
  EXPECT_EQ(cache.compiled(), 4U);

  // All of them have changed the one variable.
  Interpreter oracle(g.graph);
  for (const std::int64_t n : {8, 8, 3, 8, 3, 5, 8}) oracle.run({{"x", test_tensor(n, 1)}}, {}, {"update"});
  EXPECT_TRUE(same_bytes(*runtime.variables().find("w"), oracle.variables().at("w")));
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
