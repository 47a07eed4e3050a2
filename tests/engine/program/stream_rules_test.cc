// Streams by name, and what reaches beyond one node: backward nodes, propagation, colocation through rules.
#include "engine/program/stream_rules.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <ctime>
#include <fstream>

#include "engine/compile/compile.h"
#include "engine/exec/plan_report.h"
#include "tests/engine/testing/test_ops.h"
#include "tests/support/message_of.h"

namespace braid::testing {
namespace {

std::string refusal(std::string_view text) {
  return message_of([&] { StreamRules::parse(text, "r"); });
}

TEST(StreamRulesTest, TheFirstLineThatMatchesTheWholeNameDecides) {
  const StreamRules rules = StreamRules::parse("# towers\n\n2:tower/a.*, tower/b\n1:tower/.*\r\n", "r");
  ASSERT_EQ(rules.size(), 2);
  EXPECT_EQ(rules.find("tower/a/MatMul"), 0);
  EXPECT_EQ(rules.find("tower/b"), 0);
  EXPECT_EQ(rules.find("tower/b/MatMul"), 1);
  EXPECT_EQ(rules.find("my/tower/b"), std::nullopt);
  EXPECT_EQ(rules.rule(0).stream, 2);
  EXPECT_EQ(rules.place(1), "r:4");
}

TEST(StreamRulesTest, ACommaInsideARegexIsEscaped) {
  const StreamRules rules = StreamRules::parse(R"(0:x{1\,3},\d+)", "r");
  EXPECT_TRUE(rules.find("xx"));
  EXPECT_TRUE(rules.find("42"));
  EXPECT_FALSE(rules.find("xxxx"));
}

TEST(StreamRulesTest, WhatIsNoRuleIsRefusedWithItsLine) {
  EXPECT_EQ(refusal("0:a\nb"), "r:2: 'b' is not of the form id:regex,regex");
  EXPECT_EQ(refusal("-1:a"), "r:1: '-1' is not a stream");
  EXPECT_EQ(refusal("1x:a"), "r:1: '1x' is not a stream");
  EXPECT_EQ(refusal("1:a,,b"), "r:1: an empty regular expression");
  EXPECT_EQ(refusal("1:a("), "r:1: 'a(': missing ): a(");
  EXPECT_EQ(refusal(""), "nothing was thrown");
  EXPECT_EQ(refusal(std::string(5000, 'a')),
            "r:1: '" + std::string(200, 'a') + "...' is not of the form id:regex,regex");
}

TEST(StreamRulesTest, ManyRulesAreLookedForInOnePass) {
  std::string text = "0:a.*b\n";
  for (int i = 0; i < 1000; ++i)
    text += std::to_string(i % 4) + ":layer" + std::to_string(i) + "/[a-z]+/.*\n";
  const StreamRules rules = StreamRules::parse(text + "1:layer7/.*,.*b\n", "r");
  EXPECT_EQ(rules.find("layer999/mul/x"), 1000);
  EXPECT_EQ(rules.find_all("layer7/add/b"), (std::vector<int>{8, 1001}));
  EXPECT_EQ(rules.find_all("ab"), (std::vector<int>{0, 1001}));
  EXPECT_EQ(rules.find("layer"), std::nullopt);
  const std::clock_t begin = std::clock();  // of the process: others may be busy
  for (int i = 0; i < 20000; ++i) rules.find("layer" + std::to_string(i) + "/add/MatMul");
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 5) << "0.05 s; one by one it took 20";
}

TEST(StreamRulesTest, RulesThatAreTooLargeTogetherAreLookedForOneByOne) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "1:(x|y){900}[a-z]{900}" + std::to_string(i) + "\n";
  const StreamRules rules = StreamRules::parse(text, "r");
  EXPECT_EQ(rules.find(std::string(900, 'y') + std::string(900, 'q') + "299"), 299);
  EXPECT_EQ(rules.find("y"), std::nullopt);
}

TEST(StreamRulesTest, AByteOrderMarkIsNoPartOfTheFirstLine) {
  const StreamRules rules = StreamRules::parse(
      "\xEF\xBB\xBF"
      "1:\xC3\xBC/.*\r\n",
      "r");
  EXPECT_EQ(rules.rule(0).stream, 1);
  EXPECT_EQ(rules.find("\xC3\xBC/a"), 0);
}

TEST(StreamRulesTest, AFileThatIsNotThereIsNamed) {
  EXPECT_EQ(message_of([] { StreamRules::read("/nowhere/rules.txt"); }),
            "cannot read stream rules '/nowhere/rules.txt': No such file or directory");
  EXPECT_EQ(message_of<InvalidArgument>([] { StreamRules::read("/"); }),
            "cannot read stream rules '/': Is a directory");
  const std::string file = ::testing::TempDir() + "/rules" + std::to_string(::getpid());
  std::ofstream(file) << "3:a\n";
  EXPECT_EQ(StreamRules::read(file).find("a"), 0);
}

// ---------------------------------------------------------------------------------------------- in a program

int stream_of(const Program& program, const std::string& name) {
  for (const ProgramOp& op : program.ops)
    if (op.name == name) return op.stream;
  ADD_FAILURE() << "no op " << name;
  return -1;
}

std::shared_ptr<const Program> compile_with(const TestGraph& g, const std::string& rules, int streams,
                                            const CompileRequest& request,
                                            StreamPolicy policy = StreamPolicy::User,
                                            bool propagation = false, bool scopes_win = false) {
  CompileOptions options;
  options.streams.count = streams;
  options.streams.policy = policy;
  options.streams.rules = std::make_shared<const StreamRules>(StreamRules::parse(rules, "rules.txt"));
  options.streams.forward_propagation = propagation;
  options.streams.scopes_win = scopes_win;
  return compile(g.graph, request, options);
}

TEST(StreamRulesTest, S3_RulesCorrectScopesUnlessScopesAreToWin) {
  TestGraph g;
  const ValueRef a = g.add("test.Nop", {}, {}, "t/a"), b = g.add("test.Nop", {}, {}, "t/b");
  const ValueRef c = g.add("test.Nop", {}, {}, "c");
  g.mix({a, b, c}, 1, "end");
  g.node(a).stream = 3;
  const CompileRequest request{{}, {"end"}, {}};
  const auto rules = compile_with(g, "1:t/.*\n", 4, request);
  EXPECT_EQ(stream_of(*rules, "t/a"), 1);
  EXPECT_EQ(stream_of(*rules, "t/b"), 1);
  EXPECT_EQ(stream_of(*rules, "c"), 0);
  EXPECT_NE(plan_report(*rules).find("1 of the named nodes leave the stream of their scope (first: 't/a')"),
            std::string::npos);
  const auto scopes = compile_with(g, "1:t/.*\n", 4, request, StreamPolicy::User, false, true);
  EXPECT_EQ(stream_of(*scopes, "t/a"), 3);
  EXPECT_EQ(stream_of(*scopes, "t/b"), 1);
  EXPECT_NE(plan_report(*scopes).find("1 of the named nodes keep the stream of their scope (first: 't/a')"),
            std::string::npos);
  g.node(c).stream = 2;  // what no rule names keeps its scope
  EXPECT_EQ(stream_of(*compile_with(g, "1:t/.*\n", 4, request), "c"), 2);
}

TEST(StreamRulesTest, ARuleDecidesBetweenIdsOfOneColocationGroup) {
  TestGraph g;
  const ValueRef a = g.add("test.Nop", {}, {}, "a"), b = g.add("test.Nop", {}, {}, "b"),
                 c = g.add("test.Nop", {}, {}, "c");
  g.node(b).colocate_with = g.node(c).colocate_with = a.node;
  g.node(b).stream = 2;
  g.mix({a, b, c}, 1, "end");
  const CompileRequest request{{}, {"end"}, {}};
  const auto p = compile_with(g, "3:c\n", 4, request);
  for (const char* name : {"a", "b", "c"}) EXPECT_EQ(stream_of(*p, name), 3) << name;
  EXPECT_NE(message_of([&] {
              compile_with(g, "3:c\n", 4, request, StreamPolicy::User, false, true);
            }).find("but they are colocated"),
            std::string::npos);
}

TEST(StreamRulesTest, S3_NodesThatPassesMadeCanBeNamed) {
  // A variable that is read, written and used again is copied; a fetched one too.
  TestGraph g;
  const ValueRef w = g.variable("w", 4);
  const ValueRef read = g.add("ReadVariableOp", {w}, {{"dtype", DType::Int64}}, "old");
  const ValueRef update = g.add("test.Update", {w, g.mix({read}, 4)}, {}, "update");
  const ValueRef late = g.mix({read}, 4, "late");
  g.control(update, late);
  const auto p = compile_with(g, "1:old/copy\n2:fetch/.*\n", 3, {{}, {"late", "old"}, {"update"}});
  EXPECT_EQ(stream_of(*p, "old/copy"), 1);
  EXPECT_EQ(stream_of(*p, "fetch/old"), 2);
}

TEST(StreamRulesTest, S4_ARuleWithoutItsStreamNamesRuleAndNode) {
  TestGraph g;
  g.add("test.Nop", {}, {}, "a");
  EXPECT_EQ(
      message_of([&] {
        compile_with(g, "0:b\n2:a\n", 2, {{}, {"a"}, {}});
      }),
      "rules.txt:2: [test.Nop] node 'a': stream 2 does not exist; the program has 2 compute streams (0 to "
      "1)");
  EXPECT_EQ(message_of([&] {
              compile_with(g, "7:nothing\n", 2, {{}, {"a"}, {}});
            }),
            "rules.txt:1: stream 7 does not exist; the program has 2 compute streams (0 to 1)");
}

TEST(StreamRulesTest, S4_ARuleThatMatchesNothingIsSaid) {
  TestGraph g;
  g.add("test.Nop", {}, {}, "a");
  const auto p = compile_with(g, "0:a\n1:tower.*\n", 2, {{}, {"a"}, {}});
  EXPECT_NE(plan_report(*p).find("warning: streams: rules.txt:2: no node matches '1:tower.*'"),
            std::string::npos);
  const auto empty = compile_with(g, "# nothing\n", 2, {{}, {"a"}, {}});
  EXPECT_NE(plan_report(*empty).find("warning: streams: rules.txt has no rules"), std::string::npos);
  const auto none = compile_with(g, "1:a\n", 2, {{}, {"a"}, {}}, StreamPolicy::None);
  EXPECT_NE(plan_report(*none).find("NONE does not use the rules file"), std::string::npos);
  const auto alone = compile_with(g, "", 2, {{}, {"a"}, {}}, StreamPolicy::None, true);
  EXPECT_NE(plan_report(*alone).find("NONE does not use forward propagation"), std::string::npos);
}

TEST(StreamRulesTest, S3_NodesThatComputeTheSameStayApartWhereRulesPutThemApart) {
  TestGraph g;
  const ValueRef x = g.feed("x", 4);
  const ValueRef a = g.add("AddN", {x, x}, {}, "a"), b = g.add("AddN", {x, x}, {}, "b"),
                 c = g.add("AddN", {x, x}, {}, "c");
  g.mix({a, b, c}, 4, "end");
  const auto p = compile_with(g, "1:a\n2:b|c\n", 3, {kX, {"end"}, {}});
  EXPECT_EQ(stream_of(*p, "a"), 1);
  EXPECT_EQ(stream_of(*p, "b"), 2);
  EXPECT_EQ(op_named(*p, "c"), -1) << "b computes it";
  EXPECT_EQ(plan_report(*p).find("warning:"), std::string::npos);
}

TEST(StreamRulesTest, S4_ARuleThatDecidesNothingIsSaidToo) {
  TestGraph g;
  const ValueRef x = g.feed("x", 4), a = g.mix({x}, 4, "a");
  g.mix({a, g.constant({1})}, 4, "end");
  const auto p = compile_with(g, "0:a\n1:a,b\n1:x\n0:end\n", 2, {kX, {"end"}, {}});
  const std::string report = plan_report(*p);
  EXPECT_NE(report.find("rules.txt:2: lines before it decide all nodes that '1:a,b' names"),
            std::string::npos)
      << report;
  EXPECT_NE(report.find("rules.txt:2: no node matches 'b' of '1:a,b'"), std::string::npos) << report;
  EXPECT_NE(report.find("rules.txt:3: '1:x' names only constants, inputs and views, which run on no stream"),
            std::string::npos)
      << report;
  EXPECT_EQ(report.find("rules.txt:4"), std::string::npos) << report;
}

TEST(StreamRulesTest, S4_OneRegexOfALineThatMatchesNothingIsSaid) {
  TestGraph g;
  const ValueRef x = g.feed("x", 4), a = g.mix({x}, 4, "a"), b = g.add("AddN", {x, x}, {}, "b"),
                 same = g.add("AddN", {x, x}, {}, "same");
  g.mix({a, b, same}, 4, "end");
  const auto p = compile_with(g, "1:a,towr.*\n0:b,same,fetch/end,end\n", 2, {kX, {"end"}, {}});
  const std::string report = plan_report(*p);
  EXPECT_NE(report.find("warning: streams: rules.txt:1: no node matches 'towr.*' of '1:a,towr.*'"),
            std::string::npos)
      << report;
  EXPECT_EQ(report.find("'same' of"), std::string::npos) << "b computes it\n" << report;
  EXPECT_NE(report.find("no node matches 'fetch/end' of"), std::string::npos) << report;
  EXPECT_EQ(report.find("no node matches '1:a"), std::string::npos) << "the line finds something\n" << report;
}

TEST(StreamRulesTest, S3_TwoRulesForOneColocationGroupAreRefusedWithTheirLines) {
  TestGraph g;
  const ValueRef a = g.add("test.Nop", {}, {}, "a"), b = g.add("test.Nop", {}, {}, "b"),
                 c = g.add("test.Nop", {}, {}, "c");
  g.node(b).colocate_with = g.node(c).colocate_with = a.node;
  g.mix({a, b, c}, 1, "end");
  EXPECT_EQ(
      message_of([&] {
        compile_with(g, "1:b\n2:c\n", 4, {{}, {"end"}, {}});
      }),
      "[test.Nop] node 'b' is on stream 1 (rules.txt:1) and [test.Nop] node 'c' on stream 2 (rules.txt:2), "
      "but they are colocated");
  const auto p = compile_with(g, "1:b\n", 4, {{}, {"end"}, {}});
  for (const char* name : {"a", "b", "c"}) EXPECT_EQ(stream_of(*p, name), 1) << name;
  const auto q = compile_with(g, "3:a\n1:b\n", 4, {{}, {"end"}, {}});
  for (const char* name : {"a", "b", "c"}) EXPECT_EQ(stream_of(*q, name), 3) << name;
  EXPECT_NE(
      plan_report(*q).find("1 of the named nodes take the stream of what they are colocated with (first: "
                           "'b')"),
      std::string::npos);
}

TEST(StreamRulesTest, S5_BackwardNodesFollowANamedForwardNodeAndCanBeNamedThemselves) {
  TestGraph g;
  const ValueRef f = g.add("test.Nop", {}, {}, "f"), k = g.add("test.Nop", {}, {}, "k");
  const ValueRef df = g.add("test.Nop", {f}, {}, "gradients/f"),
                 dk = g.add("test.Nop", {k}, {}, "gradients/k");
  g.mix({df, dk}, 1, "end");
  g.node(df).forward_of = f.node;
  g.node(dk).forward_of = k.node;
  g.node(k).stream = g.node(dk).stream = 3;  // as autodiff copies it
  const auto p = compile_with(g, "1:f\n2:gradients/k\n", 4, {{}, {"end"}, {}});
  EXPECT_EQ(stream_of(*p, "gradients/f"), 1);
  EXPECT_EQ(stream_of(*p, "k"), 3);
  EXPECT_EQ(stream_of(*p, "gradients/k"), 2) << "the copied id is the forward node's, not its own";
}

TEST(StreamRulesTest, S3_PropagationIsOptInAndTakesTheStreamOfMostInputs) {
  TestGraph g;
  std::vector<ValueRef> v;
  for (int i = 0; i < 3; ++i) v.push_back(g.add("test.Nop", {}, {}, "v" + std::to_string(i)));
  g.node(v[0]).stream = 2;
  g.node(v[1]).stream = g.node(v[2]).stream = 1;
  const ValueRef tie = g.add("test.Nop", {v[0], v[1]}, {}, "tie");
  const ValueRef most = g.add("test.Nop", {v[0], v[1], v[2]}, {}, "most");
  const ValueRef free = g.add("test.Nop", {}, {}, "free");
  const ValueRef next = g.add("test.Nop", {most, free}, {}, "next");
  g.mix({tie, next}, 1, "end");
  const CompileRequest request{{}, {"end"}, {}};
  const auto with = compile_with(g, "", 4, request, StreamPolicy::User, true);
  EXPECT_EQ(stream_of(*with, "tie"), 1) << "ties go to the lowest";
  EXPECT_EQ(stream_of(*with, "most"), 1);
  EXPECT_EQ(stream_of(*with, "next"), 1);
  EXPECT_EQ(stream_of(*with, "free"), 0);
  const auto without = compile_with(g, "", 4, request);
  for (const char* name : {"tie", "most", "next"}) EXPECT_EQ(stream_of(*without, name), 0) << name;
}

TEST(StreamRulesTest, OpsOfLanesKeepTheirStreamAndTheNoteSaysSo) {
  TestGraph g;
  g.add("test.Pull", {g.feed("x", 4)}, {}, "pull");
  const auto p = compile_with(g, "1:pull\n", 2, {{{"x", DType::Int64, Shape{4}}}, {"pull"}, {}});
  EXPECT_EQ(stream_of(*p, "pull"), 2);
  EXPECT_NE(plan_report(*p).find("keep the stream of their lane (first: 'pull')"), std::string::npos);
}

}  // namespace
}  // namespace braid::testing
