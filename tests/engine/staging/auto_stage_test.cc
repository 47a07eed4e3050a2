// T10: the automatic cut is what its definition says, and staging by it changes no bit.
#include "engine/staging/auto_stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>

#include "engine/builder/graph_builder.h"
#include "engine/import/import.h"
#include "engine/staging/staged_session.h"
#include "proto/graph.pb.h"
#include "tests/engine/staging/delayed_op.h"
#include "tests/engine/staging/stage_test_util.h"

namespace braid::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

const Shape kShape{5};

std::vector<std::string> names(const Graph& graph, const std::vector<ValueRef>& values) {
  std::vector<std::string> result;
  for (const ValueRef value : values) result.push_back(graph.value_name(value));
  std::sort(result.begin(), result.end());
  return result;
}

std::vector<std::string> handed_over(const Graph& graph, const AutoStageRequest& request) {
  const AutoStageResult result = auto_stage(graph, request);
  return result.stage ? names(graph, result.stage->outputs) : std::vector<std::string>{};
}

TEST(AutoStageTest, T10_TakesAllThatDependsOnRecordsAndNotOnState) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, kShape), y = b.placeholder("y", DType::Float32, kShape);
  const Output mean = b.op("Relu", {x}, {}, "a");
  const Output joint = b.op("AddV2", {mean, y}, {}, "joint");  // of several inputs
  const Output w = b.variable("w", kShape, {});
  const Output hidden = b.op("Mul", {joint, b.read(w)}, {}, "hidden");
  const Output loss = b.op("AddV2", {hidden, b.op("Neg", {y}, {}, "minus")}, {}, "loss");
  b.op("AssignAddVariableOp", {w, loss}, {{"dtype", DType::Float32}}, "update");
  const Graph graph = import_graph(b.graph());
  const AutoStageRequest request{.records = {"x", "y"}, .fetches = {"loss", "a"}, .targets = {"update"}};
  const AutoStageResult result = auto_stage(graph, request);
  ASSERT_TRUE(result.stage);
  EXPECT_THAT(names(graph, result.stage->outputs), ElementsAre("a", "joint", "minus"))
      << "a, because it is fetched; x and y stay behind";
  EXPECT_EQ(result.nodes, 3);
  EXPECT_THAT(result.report, AllOf(HasSubstr("3 of "), HasSubstr("a, joint, minus")));
}

TEST(AutoStageTest, T10_MarkedTargetsStayOutWithWhatDependsOnThem) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, kShape);
  const Output a = b.op("Relu", {x}, {}, "a"), c = b.op("Neg", {a}, {}, "c"), d = b.op("Neg", {c}, {}, "d");
  static_cast<void>(d);
  const Graph graph = import_graph(b.graph());
  EXPECT_THAT(handed_over(graph, {.records = {"x"}, .keep = {}, .fetches = {"d"}}), ElementsAre("d"));
  EXPECT_THAT(handed_over(graph, {.records = {"x"}, .keep = {"c"}, .fetches = {"d"}}), ElementsAre("a"));
  EXPECT_THAT(handed_over(graph, {.records = {"x"}, .keep = {}, .fetches = {"d"}}), ElementsAre("d"))
      << "nothing of an earlier call is left in the process";
}

TEST(AutoStageTest, T10_AMarkedRecordCrossesAndWhatDependsOnItStaysOut) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, kShape), z = b.placeholder("z", DType::Float32, kShape);
  const Output a = b.op("Relu", {z}, {}, "a"), c = b.op("Neg", {x}, {}, "c");
  b.op("AddV2", {a, c}, {}, "sum");
  const Graph graph = import_graph(b.graph());
  EXPECT_THAT(handed_over(graph, {.records = {"x", "z"}, .keep = {"x"}, .fetches = {"sum"}}),
              UnorderedElementsAre("a", "x"));
}

TEST(AutoStageTest, T10_NothingToStageIsNoStageAndSaysWhy) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, kShape),
               other = b.placeholder("other", DType::Float32, kShape);
  const Output w = b.variable("w", kShape, {});
  b.op("Mul", {b.op("Identity", {x}, {}, "same"), b.read(w)}, {}, "y");
  b.op("Neg", {other}, {}, "n");
  const Graph graph = import_graph(b.graph());
  for (const AutoStageRequest& request : {AutoStageRequest{.records = {"x"}, .fetches = {"y"}},
                                          AutoStageRequest{.records = {"x"}, .fetches = {"n"}},
                                          AutoStageRequest{.records = {}, .fetches = {"n"}}}) {
    const AutoStageResult result = auto_stage(graph, request);
    EXPECT_FALSE(result.stage);
    EXPECT_THAT(result.report, HasSubstr("nothing to stage"));
  }
  EXPECT_THROW(auto_stage(graph, {.records = {"none"}, .fetches = {"y"}}), InvalidArgument);
}

TEST(AutoStageTest, T10_ControlEdgesAreKept) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, kShape);
  const Output w = b.variable("w", kShape, {});
  const Output late = b.op("Neg", {x}, {}, "late");     // after the update: stays
  const Output early = b.op("Relu", {x}, {}, "early");  // before the update: its value crosses
  const Output update = b.op("AssignAddVariableOp", {w, x}, {{"dtype", DType::Float32}}, "update");
  b.control_dependency(update, late);
  b.control_dependency(early, update);
  const Graph graph = import_graph(b.graph());
  EXPECT_THAT(handed_over(graph, {.records = {"x"}, .fetches = {"late"}, .targets = {"update"}}),
              ElementsAre("early", "x"));
}

/// A random graph over records, constants and two variables, some of it updating them, with control edges.
struct RandomGraph {
  GraphBuilder b;
  std::vector<std::string> placeholders, fetches, targets;

  explicit RandomGraph(unsigned seed) {
    std::minstd_rand random(seed * 7919 + 1);
    random.discard(5);
    const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    std::vector<Output> values;
    for (const char* name : {"x", "y", "z"}) {
      values.push_back(b.placeholder(name, DType::Float32, kShape));
      placeholders.push_back(name);
    }
    values.push_back(b.constant(Tensor::from<float>(kShape, std::vector<float>{1, -2, 0.5F, 3, -1})));
    std::vector<Output> handles;
    for (const char* name : {"v", "w"}) {
      VariableOptions options;
      options.init = {.kind = InitKind::Constant, .a = 0.5};
      handles.push_back(b.variable(name, kShape, options));
    }
    register_delayed_op();
    const char* const unary[] = {"Relu", "Neg", "Tanh", "test.Delayed"};
    const char* const binary[] = {"AddV2", "Mul", "Sub", "Maximum"};
    for (int i = 0; i < 24; ++i) {
      const std::string name = "n" + std::to_string(i);
      switch (pick(8)) {
        case 7: {  // two outputs, of which one may have no use
          const Output pair = b.op("Unpack",
                                   {b.op("Pack", {values[pick(values.size())], values[pick(values.size())]},
                                         {{"N", std::int64_t{2}}, {"axis", std::int64_t{0}}}, name + "p")},
                                   {{"num", std::int64_t{2}}, {"axis", std::int64_t{0}}}, name);
          values.push_back(pair);
          if (pick(2) == 0) values.push_back({pair.node, 1});
          break;
        }
        case 0:
        case 1:
          values.push_back(b.op(unary[pick(4)], {values[pick(values.size())]}, {}, name));
          break;
        case 5:
          values.push_back(b.op("ReadVariableOp", {handles[pick(2)]}, {{"dtype", DType::Float32}}, name));
          break;
        default:
          values.push_back(
              b.op(binary[pick(4)], {values[pick(values.size())], values[pick(values.size())]}, {}, name));
          if (pick(4) == 0) b.control_dependency(values[pick(values.size() - 1)], values.back());
      }
    }
    for (std::size_t v = 0; v < 2; ++v) {
      // Bounded, so that fifty steps stay finite.
      const Output delta = b.op("Tanh", {values[pick(values.size())]}, {}, "delta" + std::to_string(v));
      targets.push_back("update" + std::to_string(v));
      b.op("AssignAddVariableOp", {handles[v], delta}, {{"dtype", DType::Float32}}, targets.back());
    }
    for (int i = 0; i < 3; ++i) fetches.push_back(values[4 + pick(values.size() - 4)].name());
  }
};

Batch record(std::uint64_t ticket) {
  random_delay(ticket, 200);
  Batch batch;
  for (std::uint64_t p = 0; p < 3; ++p) {
    Tensor tensor(DType::Float32, kShape);
    for (std::size_t i = 0; i < 5; ++i)
      tensor.data<float>()[i] = 0.125F * static_cast<float>((ticket * 31 + p * 7 + i * 13) % 23) - 1.0F;
    batch.tensors.push_back(std::move(tensor));
  }
  return batch;
}

struct Above {
  bool state = false, fed = false;
};

/// The definition, written the long way: a node is staged when no path leads to it from state and one does
/// from a record.
Above above(const Graph& graph, NodeId id, const std::vector<std::string>& targets) {
  Above result;
  std::set<NodeId> seen;
  std::vector<NodeId> open{id};
  while (!open.empty()) {
    const Node& node = graph.node(open.back());
    open.pop_back();
    if (!seen.insert(node.id).second) continue;
    result.state |= node.op->name == "VarHandleOp" ||
                    std::find(targets.begin(), targets.end(), node.name) != targets.end();
    result.fed |= node.op->name == "Placeholder";
    for (const ValueRef input : node.inputs) open.push_back(input.node);
    for (const NodeId control : node.control_inputs) open.push_back(control);
  }
  return result;
}

TEST(AutoStageTest, T10_RandomGraphsAreCutByTheDefinitionAndGiveTheSameBits) {
  int staged_graphs = 0;
  for (unsigned seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const RandomGraph random(seed);
    const Graph graph = import_graph(random.b.graph());
    AutoStageRequest request{
        .records = random.placeholders, .fetches = random.fetches, .targets = random.targets};
    request.options.num_threads = 1 + static_cast<int>(seed % 3);
    request.options.capacity = 2;
    const AutoStageResult found = auto_stage(graph, request);
    EXPECT_EQ(auto_stage(graph, request).report, found.report) << "deterministic";
    if (!found.stage) continue;
    ++staged_graphs;

    const StagedGraph cut = cut_graph(graph, {*found.stage}, random.fetches, random.targets);
    for (const NodeId id : cut.parts[0].body.nodes)
      EXPECT_FALSE(above(graph, id, random.targets).state) << graph.node(id).name;
    for (const NodeId id : cut.step.nodes) {
      const Above what = above(graph, id, random.targets);
      EXPECT_TRUE(what.state || !what.fed)
          << "the largest cut leaves nothing to the step that could be staged: " << graph.node(id).name;
    }

    Runtime plain({}), beside({});
    ProgramCache cache(graph, random.fetches, random.targets, {}, plain);
    StagedSession session(graph, {*found.stage}, random.fetches, random.targets,
                          {{random.placeholders, record}}, {.compile = {}}, beside);
    const PrefetchHook hook(session);
    for (std::uint64_t t = 0; t < 6; ++t) {
      StepRequest step;
      std::vector<FeedSpec> specs;
      step.params.step = t;
      step.feeds = record(t).tensors;
      for (const auto& name : random.placeholders) specs.push_back({name, DType::Float32, kShape});
      const StepResult want = cache.instance(specs)->run(std::move(step), soon());
      StepParams params;
      params.step = t;
      const StepResult got = session.run(params, {}, soon());
      for (std::size_t f = 0; f < want.fetches.size(); ++f)
        ASSERT_EQ(std::memcmp(want.fetches[f].raw(), got.fetches[f].raw(), want.fetches[f].bytes()), 0)
            << random.fetches[f] << " of step " << t;
    }
  }
  EXPECT_GT(staged_graphs, 100);
}

}  // namespace
}  // namespace braid::testing
