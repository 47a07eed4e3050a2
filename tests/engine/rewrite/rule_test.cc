// The driver of rewrite rules: what patterns match, which rule is taken, and what a pass does afterwards.
#include "engine/rewrite/rule.h"

#include <gtest/gtest.h>

#include <optional>

namespace braid::testing {
namespace {

/// x -> Neg "n" -> Exp "e" -> Relu "r", which is fetched.
class RuleTest : public ::testing::Test {
 protected:
  RuleTest() : plan_(request_, options_) {
    x_ = add("x", "Placeholder", {}, {{"dtype", DType::Float32}, {"shape", Shape{4}}});
    n_ = add("n", "Neg", {{x_, 0}});
    e_ = add("e", "Exp", {{n_, 0}});
    r_ = add("r", "Relu", {{e_, 0}});
    plan_.fetches = {{r_, 0}};
  }

  NodeId add(const std::string& name, const std::string& op, std::vector<ValueRef> inputs,
             AttrMap attrs = {}) {
    Node node;
    node.name = name;
    node.op = &OpRegistry::global().require(op);
    node.inputs = std::move(inputs);
    node.attrs = std::move(attrs);
    return graph().add(std::move(node));
  }
  Graph& graph() { return plan_.program.graph; }
  Match match(const Pattern& pattern, NodeId id) { return pattern.match(graph(), graph().node(id)); }

  static bool always(const Rewrite&, const Match&) { return true; }
  static bool never(const Rewrite&, const Match&) { return false; }
  /// Puts a node of the same op in the place of the first.
  static void again(Rewrite& r, const Match& match) { replace(r.plan, match[0], r.node(match[0]), "/again"); }

  CompileRequest request_;
  CompileOptions options_;
  Plan plan_;
  NodeId x_, n_, e_, r_;
};

TEST_F(RuleTest, PatternsGoFromANodeUpToWhatItReads) {
  EXPECT_EQ(match({"Exp"}, e_), Match{e_});
  EXPECT_EQ(match(Pattern{"Relu"}.reading(0, Pattern{"Log", "Exp"}.reading(0, {"Neg"})), r_),
            (Match{r_, e_, n_}));
  EXPECT_EQ(match(Pattern{"Exp"}.reading(0, {"Log"}), e_), Match{});
  EXPECT_EQ(match(Pattern{"Exp"}.reading(1, {"Neg"}), e_), Match{});
}

TEST_F(RuleTest, PatternsOfAKindAskTheOp) {
  const Pattern elementwise([](const OpDef& op) { return op.traits.elements == Elements::Pointwise; });
  EXPECT_EQ(match(elementwise, e_), Match{e_});
  EXPECT_EQ(match(elementwise, x_), Match{});
  EXPECT_EQ(match(Pattern{"Relu"}.reading(0, elementwise), r_), (Match{r_, e_}));
}

TEST_F(RuleTest, RemovedNodesFitNoPattern) {
  graph().remove(n_);
  EXPECT_EQ(match(Pattern{"Exp"}.reading(0, {"Neg"}), e_), Match{});
}

TEST_F(RuleTest, TheFirstRuleThatFitsRewrites) {
  Rewrite rewrite(plan_);
  const std::vector<Rule> rules{{"refused", {"Exp"}, never, again},
                                {"taken", {"Exp"}, always, again},
                                {"too late", {"Exp"}, always, again}};
  EXPECT_EQ(apply_rules(rewrite, rules, graph().topological_order()), (std::vector{0, 1, 0}));
  EXPECT_NE(graph().find("e/again"), kNoNode);
  EXPECT_EQ(graph().node(r_).inputs[0].node, graph().find("e/again"));
}

TEST_F(RuleTest, NodesThatAreMadeAreNotVisited) {
  Rewrite rewrite(plan_);
  const std::vector<Rule> rules{{"again", {"Neg", "Exp"}, always, again}};
  EXPECT_EQ(apply_rules(rewrite, rules, graph().topological_order()), std::vector{2});
}

TEST_F(RuleTest, BuildsGetWhatGuardsHaveFound) {
  Rewrite rewrite(plan_);
  std::string built;
  const Rule rule(
      "found", {"Exp", "Relu"},
      [](const Rewrite& r, const Match& match) {
        const Node& node = r.node(match[0]);
        return node.name == "r" ? std::optional(node.name + "!") : std::nullopt;
      },
      [&](Rewrite&, const Match&, const std::string& found) { built += found; });
  EXPECT_EQ(apply_rules(rewrite, {rule}, {e_, r_}), std::vector{1});
  EXPECT_EQ(built, "r!");
}

TEST_F(RuleTest, ARewriteThatGivesFalseLeavesTheNodeToTheNextRule) {
  Rewrite rewrite(plan_);
  const std::vector<Rule> rules{{"tries", {"Exp"}, [](Rewrite&, const Match&) { return false; }},
                                {"does", {"Exp"}, [](Rewrite& r, const Match& match) {
                                   again(r, match);
                                   return true;
                                 }}};
  EXPECT_EQ(apply_rules(rewrite, rules, graph().topological_order()), (std::vector{0, 1}));
}

TEST_F(RuleTest, RulesAreAppliedUntilNoneFits) {
  // Neg moves down through Exp and Relu, a step each time.
  const auto sink = [](Rewrite& r, const Match& match) {
    Node first = r.node(match[1]), second = r.node(match[0]);
    std::swap(first.op, second.op);
    replace(r.plan, match[1], std::move(first), "/up");
    second.inputs = {r.graph.node(match[0]).inputs[0]};
    replace(r.plan, match[0], std::move(second), "/down");
    r.graph.remove(match[1]);
    r.graph.remove(match[0]);
  };
  const std::vector<Rule> rules{{"sink", Pattern{"Relu"}.reading(0, {"Neg"}), always, sink}};
  const std::vector<Rule> before{{"sink", Pattern{"Exp"}.reading(0, {"Neg"}), always, sink}};
  EXPECT_EQ(apply_until_none_fits(plan_, {rules, before}), 2) << "the first list fits the second time only";
  EXPECT_EQ(graph().node(plan_.fetches[0].node).op->name, "Neg");
}

TEST_F(RuleTest, GroupsAreTheNodesOfOneKey) {
  std::vector<NodeId> made;
  for (int i = 0; i < 5; ++i) made.push_back(add("s" + std::to_string(i), i < 4 ? "Sin" : "Cos", {{x_, 0}}));
  std::vector<std::vector<NodeId>> groups;
  const auto key = [&](const Node& node) {
    return node.name == "s3" ? std::nullopt : std::optional(node.name == "s1" ? 2 : 1);
  };
  const auto build = [&](const std::vector<NodeId>& members) {
    groups.push_back(members);
    return members[0];
  };
  const Grouped one = join_groups(graph(), made, {"Sin"}, key, build);
  EXPECT_EQ(groups, (std::vector<std::vector<NodeId>>{{made[0], made[2]}})) << "s1 is alone, s3 has no key";
  EXPECT_EQ(one.nodes, 2);
  EXPECT_EQ(one.groups, 1);
  EXPECT_FALSE(graph().node(made[0]).removed) << "what the build gives stays";
  EXPECT_TRUE(graph().node(made[2]).removed);
}

TEST_F(RuleTest, GroupsAreMadeInTheOrderOfTheirKeys) {
  std::vector<NodeId> nodes;
  for (int i = 0; i < 4; ++i) nodes.push_back(add("s" + std::to_string(i), "Sin", {{x_, 0}}));
  std::vector<NodeId> firsts;
  const auto key = [&](const Node& node) { return std::optional(node.id < nodes[2] ? 2 : 1); };
  const auto build = [&](const std::vector<NodeId>& members) {
    firsts.push_back(members[0]);
    return kNoNode;
  };
  EXPECT_EQ(join_groups(graph(), nodes, {"Sin"}, key, build).groups, 2);
  EXPECT_EQ(firsts, (std::vector{nodes[2], nodes[0]}));
  for (const NodeId id : nodes) EXPECT_TRUE(graph().node(id).removed);
}

TEST_F(RuleTest, APassPrunesAndSaysWhatItDid) {
  const auto text = [](const std::vector<int>& applied) { return std::to_string(applied[0]) + " times"; };
  plan_.pass = "test";
  run_rules(plan_, {.rules = {{"none", {"Log"}, always, again}}, .text = text});
  EXPECT_TRUE(plan_.program.notes.empty());
  run_rules(plan_, {.rules = {{"again", {"Exp"}, always, again}}, .text = text});
  ASSERT_EQ(plan_.program.notes.size(), 1U);
  EXPECT_EQ(to_string(plan_.program.notes[0]), "test: 1 times");
  EXPECT_TRUE(graph().node(e_).removed);
}

TEST_F(RuleTest, UsersKnowWhoReadsWhatAndWhoIsWaitedFor) {
  graph().mutable_node(r_).control_inputs = {n_};
  const NodeId other = add("other", "Neg", {{e_, 0}});
  const Users users(graph());
  EXPECT_EQ(users.of(e_), (std::vector{r_, other}));
  EXPECT_FALSE(users.is_only_reader(r_, {e_, 0}));
  EXPECT_TRUE(users.is_only_reader(r_, {r_, 0}));
  EXPECT_FALSE(users.is_only_reader(e_, {n_, 0})) << "r waits for n";
  EXPECT_TRUE(users.is_named(n_));
  EXPECT_FALSE(users.is_named(e_));
}

}  // namespace
}  // namespace braid::testing
