// Graphs with a tower for each GPU under MIRRORED: which become their first tower, and which do not, and why.
#include "worker/model/towers.h"

#include <gmock/gmock.h>

#include "engine/ir/op.h"
#include "proto/graph.pb.h"
#include "tests/support/message_of.h"
#include "tests/worker/model/graph_model.h"

namespace braid::testing {
namespace {

using ::testing::HasSubstr;

class TowersTest : public GraphModelTest {
 protected:
  struct Tower {
    Output rows, loss;  // the losses of its rows, and their mean
    Output logit;
  };

  Output split(const Output& value, int parts, int axis = 0) {
    return b.op("Split", {b.constant(Tensor::scalar<std::int32_t>(axis)), value}, {{"num_split", parts}});
  }
  Output number(float value) { return b.constant(Tensor::scalar(value)); }

  /// Of x [?, 3] and the labels, on the parts of that number.
  Tower tower(int gpu, const Output& read, int part) {
    const DeviceScope device(b, "/gpu:" + std::to_string(gpu));
    const Output y =
        b.op("Squeeze", {b.matmul({xs.node, part}, read)}, {{"squeeze_dims", std::vector<std::int64_t>{1}}});
    const Output rows = b.op("SquaredDifference", {y, {labels.node, part}});
    return {rows, b.reduce_mean(rows), y};
  }
  std::vector<Tower> towers(int count) {
    read_batch(count);
    std::vector<Tower> all;
    for (int i = 0; i < count; ++i) all.push_back(tower(i, w, i));
    return all;
  }
  void read_batch(int parts) {
    xs = split(b.placeholder("x", DType::Float32, {-1, 3}), parts);
    labels = split(b.placeholder("label", DType::Float32, {-1}), parts);
    w = variable("w", {3, 1}, zeros({3, 1}));
  }

  ModelGraph mirrored(const Output& loss, const std::string& more = "") {
    proto::Job of = job("loss: '" + loss.name() + "' " + more);
    of.mutable_strategy()->set_kind(proto::Strategy::MIRRORED);
    return worker::build_graph_model(of, columns);
  }
  /// It has one product, of all rows.
  static void expect_joined(const ModelGraph& model, int count) {
    EXPECT_EQ(model.towers, count);
    const Graph graph = graph_of(model);
    int products = 0;
    for (NodeId id = 0; id < graph.size(); ++id) {
      const Node& node = graph.node(id);
      if (node.removed) continue;
      EXPECT_NE(node.op->name, "Split");
      if (node.op->name != "MatMul") continue;
      ++products;
      EXPECT_EQ(graph.node(node.inputs[0].node).name, "x");
    }
    EXPECT_EQ(products, 1);
  }
  void expect_apart(const Output& loss, const std::string& why) {
    std::string value = loss.name(), none;
    GraphDef graph = b.graph();
    const worker::JoinedTowers joined = worker::join_towers(graph, value, none);
    EXPECT_EQ(joined.count, 0);
    EXPECT_THAT(joined.why_not, HasSubstr(why));
    EXPECT_EQ(graph.DebugString(), b.graph().DebugString()) << "it is as it was";
    EXPECT_EQ(mirrored(loss).towers, 0) << "it trains all the same";
  }

  Output xs, labels, w;
};

class MeansOfTowers : public TowersTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(MeansOfTowers, AreThoseOfReplicas) {
  const std::string how = GetParam();
  const std::vector<Tower> all = towers(3);
  const Output sum = b.op("AddN", {all[0].loss, all[1].loss, all[2].loss});
  const Output zero = b.constant(Tensor::scalar<std::int32_t>(0));
  Output loss;
  if (how == "Divided") loss = b.op("RealDiv", {sum, number(3)});
  if (how == "Scaled") loss = b.op("Mul", {number(1.0F / 3), sum});
  if (how == "Packed") loss = b.reduce_mean(b.op("Pack", {all[0].loss, all[1].loss, all[2].loss}));
  if (how == "OfRows") loss = b.reduce_mean(b.op("ConcatV2", {all[0].rows, all[1].rows, all[2].rows, zero}));
  if (how == "Nested")
    loss = b.op("RealDiv", {b.add(b.add(all[0].loss, all[1].loss), all[2].loss), number(3)});
  expect_joined(mirrored(loss), 3);
}

INSTANTIATE_TEST_SUITE_P(All, MeansOfTowers,
                         ::testing::Values("Divided", "Scaled", "Packed", "OfRows", "Nested"),
                         [](const auto& each) { return std::string(each.param); });

TEST_F(TowersTest, WhatIsBesideTheTowersStaysBesideThem) {
  const std::vector<Tower> all = towers(2);
  const Output mean = b.op("Mul", {b.add(all[0].loss, all[1].loss), number(0.5F)});
  const Output loss = b.add(mean, b.op("L2Loss", {w}, {}, "decay"));
  const ModelGraph model = mirrored(loss);
  expect_joined(model, 2);
  EXPECT_NE(graph_of(model).find("decay"), kNoNode);
}

TEST_F(TowersTest, PredictionsOfTheirRowsAreThoseOfTheBatch) {
  const std::vector<Tower> all = towers(2);
  b.op("ConcatV2", {all[0].logit, all[1].logit, b.constant(Tensor::scalar<std::int32_t>(0))}, {}, "scores");
  const Output loss = b.op("Mul", {b.add(all[0].loss, all[1].loss), number(0.5F)});
  const ModelGraph model = mirrored(loss, "prediction: 'scores'");
  expect_joined(model, 2);
  EXPECT_EQ(model.prediction, "value");
}

TEST_F(TowersTest, OtherStrategiesLeaveThemAsTheyAre) {
  const std::vector<Tower> all = towers(2);
  const Output loss = b.op("Mul", {b.add(all[0].loss, all[1].loss), number(0.5F)});
  const ModelGraph model = build("loss: '" + loss.name() + "'");
  EXPECT_EQ(model.towers, 0);
}

TEST_F(TowersTest, WhatIsNoMeanOfTowersIsNotOne) {
  const std::vector<Tower> all = towers(2);
  expect_apart(b.add(all[0].loss, all[1].loss), "its loss is no mean of theirs");
  expect_apart(b.op("Mul", {b.add(all[0].loss, all[1].loss), number(0.25F)}),
               "its loss is no mean of theirs");
}

TEST_F(TowersTest, TowersThatDifferAreNotJoined) {
  read_batch(2);
  const auto mean = [&](const Tower& one, const Tower& other) {
    return b.op("Mul", {b.add(one.loss, other.loss), number(0.5F)});
  };
  const Output other = variable("other", {3, 1}, zeros({3, 1}));
  expect_apart(mean(tower(0, w, 0), tower(1, other, 1)), "differs from");
  expect_apart(mean(tower(0, w, 0), tower(1, w, 0)), "they read the same rows");
}

}  // namespace
}  // namespace braid::testing
