// Which nodes are one colocation group, whatever names a GraphDef has for it, and whose id the group has.
#include "engine/ir/colocation.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <memory>
#include <sstream>

#include "engine/builder/graph_builder.h"
#include "engine/import/import.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/graph_text.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Nodes with constraints: "b: a c" is colocated with a and c, in a list with whatever else is there.
class ColocationTest : public ::testing::Test {
 protected:
  void load(const std::vector<std::pair<std::string, std::string>>& nodes,
            const ImportOptions& options = {}) {
    std::string text = node("x", "Placeholder", "", "attr { key: 'dtype' value { type: DT_FLOAT } }");
    for (const auto& [name, targets] : nodes) {
      std::string list;
      for (std::stringstream words(targets); !words.eof();) {
        std::string target;
        if (words >> target) list += "s: 'loc:@" + target + "' ";
      }
      text += node(name, "Relu", "x", "attr { key: '_class' value { list { " + list + "} } }");
    }
    graph_ = import_graph(parse_graph(text), "graph", options);
    groups_ = std::make_unique<ColocationGroups>(graph_);
  }

  std::vector<std::string> group_of(const std::string& name) const {
    std::vector<std::string> names;
    const NodeId leader = groups_->leader(graph_.find(name));
    for (const NodeId id : groups_->members(leader)) names.push_back(graph_.node(id).name);
    std::sort(names.begin(), names.end());
    return names;
  }

  /// The node whose id the group has, and one that contradicts it.
  std::vector<std::string> decided(const std::map<std::string, int>& ids) const {
    const auto decision = groups_->decide(groups_->leader(graph_.find(ids.begin()->first)), [&](NodeId id) {
      const auto at = ids.find(graph_.node(id).name);
      return at == ids.end() ? kNoStream : at->second;
    });
    std::vector<std::string> names;
    for (const NodeId id : {decision.from, decision.against})
      if (id != kNoNode) names.push_back(graph_.node(id).name);
    return names;
  }

  Graph graph_;
  std::unique_ptr<ColocationGroups> groups_;
};

TEST_F(ColocationTest, ANodeIsWithAllOfItsTargets) {
  load({{"a", ""}, {"b", ""}, {"c", "a b"}, {"d", ""}});
  EXPECT_THAT(group_of("c"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(group_of("d"), ElementsAre("d"));
  EXPECT_THAT(decided({{"a", 1}, {"c", 3}}), ElementsAre("a")) << "a target's id beats the node's own";
  EXPECT_THAT(decided({{"b", 2}, {"c", 3}}), ElementsAre("b")) << "whichever target it is";
  EXPECT_THAT(decided({{"a", 1}, {"b", 2}}), ElementsAre("a", "b"));
  EXPECT_THAT(decided({{"a", 2}, {"b", 2}}), ElementsAre("a"));
  EXPECT_THAT(decided({{"c", 3}}), ElementsAre("c")) << "which has one when no target has";
}

TEST_F(ColocationTest, ChainsAreOneGroup) {
  load({{"d", "c"}, {"c", "b"}, {"b", "a"}, {"a", ""}});
  EXPECT_THAT(group_of("d"), ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(decided({{"a", 1}, {"b", 2}, {"d", 3}}), ElementsAre("a")) << "what b takes, d takes";
  EXPECT_THAT(decided({{"b", 2}, {"d", 3}}), ::testing::UnorderedElementsAre("b", "d"));
}

TEST_F(ColocationTest, GroupsThatMeetOverTwoPathsAreOne) {
  load({{"top", ""},
        {"left", "top"},
        {"right", "top"},
        {"end", "left right"},
        {"other", ""},
        {"e", "other end"}});
  EXPECT_THAT(group_of("e"), ElementsAre("e", "end", "left", "other", "right", "top"));
  EXPECT_THAT(decided({{"top", 1}, {"left", 2}}), ElementsAre("top"));
  EXPECT_THAT(decided({{"top", 1}, {"other", 2}}), ElementsAre("top", "other"));
}

TEST_F(ColocationTest, NodesThatNameEachOtherHaveEqualRights) {
  load({{"b", "c"}, {"c", "b"}});
  EXPECT_THAT(group_of("b"), ElementsAre("b", "c"));
  EXPECT_THAT(decided({{"b", 1}, {"c", 2}}), ElementsAre("b", "c"));
  EXPECT_THAT(decided({{"b", 1}}), ElementsAre("b"));
}

TEST_F(ColocationTest, ANodesOwnNameIsNoTarget) {
  load({{"d", "d"}, {"e", "d e"}, {"f", "f f"}});
  EXPECT_THAT(group_of("e"), ElementsAre("d", "e"));
  EXPECT_THAT(group_of("f"), ElementsAre("f"));
  EXPECT_THAT(decided({{"d", 1}, {"e", 2}}), ElementsAre("d"));
}

TEST_F(ColocationTest, WhoIsWithANodeThatIsNotThereIsTogether) {
  load({{"a", "gone"}, {"b", "gone"}, {"c", "lost"}});
  EXPECT_THAT(group_of("a"), ElementsAre("a", "b"));
  EXPECT_THAT(group_of("c"), ElementsAre("c"));
  EXPECT_THAT(decided({{"a", 1}, {"b", 2}}), ElementsAre("a", "b"));
  load({{"t", ""}, {"a", "t gone"}, {"b", "gone"}});
  EXPECT_THAT(group_of("b"), ElementsAre("a", "b", "t"));
  EXPECT_THAT(decided({{"t", 1}, {"b", 2}}), ElementsAre("t"));
}

TEST_F(ColocationTest, NamesThatAreNotThereAreSaidInOneLine) {
  ::testing::internal::CaptureStderr();
  load({{"a", "gone"}, {"b", "gone lost"}, {"c", "c a"}});
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said,
              ::testing::HasSubstr("node 'a' is colocated with 'gone', which is not in the graph; 2 more are "
                                   "with such nodes"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

TEST_F(ColocationTest, WhoIsWithANodeThatIsNotWantedIsTogether) {
  load({{"t", ""}, {"a", "t"}, {"b", "t"}}, {.roots = {"a", "b"}});
  EXPECT_THAT(group_of("a"), ElementsAre("a", "b"));
}

TEST_F(ColocationTest, AGroupStaysOneWhenItsTargetIsRemoved) {
  load({{"a", ""}, {"b", "a"}, {"c", "a"}});
  graph_.remove(graph_.find("a"));
  groups_ = std::make_unique<ColocationGroups>(graph_);
  EXPECT_EQ(groups_->leader(graph_.find("b")), groups_->leader(graph_.find("c")));
}

TEST(ColocateScopeTest, AllOfANodeThatBecomesSeveralIsWithItsTarget) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Int8, {2}), y = b.placeholder("y", DType::Float32, {2});
  {
    ColocateScope with_y(b, y);
    b.op("AddV2", {x, x}, {{"T", DType::Int8}}, "sum");  // computed in a wider type
  }
  const Graph graph = import_graph(b.graph());
  const ColocationGroups groups(graph);
  ASSERT_GT(graph.size(), 3);
  for (NodeId id = 0; id < graph.size(); ++id) {
    const std::string& name = graph.node(id).name;
    EXPECT_EQ(groups.leader(id) == groups.leader(graph.find("y")), name != "x") << name;
  }
}

TEST(ColocateScopeTest, ScopesInsideOfEachOtherAllCount) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, {2}), y = b.placeholder("y", DType::Float32, {2});
  Output inner, outer;
  {
    ColocateScope with_x(b, x);
    {
      ColocateScope with_y(b, y);
      inner = b.relu(x);
    }
    outer = b.relu(y);
  }
  const Output after = b.relu(inner);
  const Graph graph = import_graph(b.graph());
  const ColocationGroups groups(graph);
  const auto leader = [&](const Output& output) { return groups.leader(graph.find(output.node)); };
  EXPECT_EQ(leader(inner), leader(x));
  EXPECT_EQ(leader(inner), leader(y));
  EXPECT_EQ(leader(outer), leader(x));
  EXPECT_FALSE(groups.is_grouped(graph.find(after.node)));
}

}  // namespace
}  // namespace braid
