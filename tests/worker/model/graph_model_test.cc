// What of a graph becomes the model of a job: its loss, variables, tables, updates and predictions, and what
// is said when it cannot be one.
#include "worker/model/graph_model.h"

#include <gmock/gmock.h>

#include "engine/import/import.h"
#include "engine/ir/op.h"
#include "proto/graph.pb.h"
#include "tests/worker/model/graph_model.h"
#include "worker/model/graph_outputs.h"

namespace braid::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// x [?, 3] times w is `logit` [?]; the loss is against the labels.
class LinearGraph : public GraphModelTest {
 protected:
  LinearGraph() {
    x = b.placeholder("x", DType::Float32, {-1, 3});
    w = variable("w", {3, 1}, zeros({3, 1}));
    logit_value =
        b.op("Squeeze", {b.matmul(x, w)}, {{"squeeze_dims", std::vector<std::int64_t>{1}}}, "score");
  }
  void add_loss() {
    const Output y = b.placeholder("label", DType::Float32, {-1});
    loss = b.reduce_mean(b.op("SquaredDifference", {logit_value, y}, {}, "squares"));
  }
  std::string loss_field() const { return "loss: '" + loss.name() + "' "; }

  Output x, w, logit_value, loss;
};

TEST_F(LinearGraph, PlaceholdersNamedLikeColumnsAreFed) {
  add_loss();
  const ModelGraph model = build(loss_field() + "prediction: 'score'");
  EXPECT_THAT(model.columns, ElementsAre("label", "x"));
  EXPECT_EQ(model.label, "label");
  EXPECT_EQ(model.inference, nullptr);
  EXPECT_EQ(model.prediction, "value");
  const Graph graph = graph_of(model);
  EXPECT_EQ(graph.info(graph.parse_value(model.loss)).shape, Shape{});
  EXPECT_TRUE(handle_of(graph, "w").attrs.get<bool>("_trainable", false));
  EXPECT_EQ(graph.find("w/Assign"), kNoNode) << "initializers fall away";
}

TEST_F(LinearGraph, AllThatIsWrongIsToldAtOnce) {
  b.placeholder("rate", DType::Float64, {});
  const Output odd = b.op("NoSuchOp", {logit_value}, {}, "odd");
  loss = b.reduce_mean(b.add(odd, b.op("Cast", {b.placeholder("scale", DType::Float64, {})},
                                       {{"SrcT", DType::Float64}, {"DstT", DType::Float32}})));
  const std::string error = error_of(loss_field() +
                                     "prediction: 'scor' feeds { value: 'x' column: 'dense' } "
                                     "updates: 'nothing'");
  EXPECT_THAT(error, HasSubstr("'x' is to have column 'dense', but the data has 'x', 'ids', 'label'"));
  EXPECT_THAT(error, HasSubstr("has no value 'scor'; did you mean 'score'?"));
  const std::string fed = error_of(loss_field());
  EXPECT_THAT(fed, HasSubstr("1 placeholder has no column:\n    'scale' (float64 [])"));
  EXPECT_THAT(fed, HasSubstr("feeds { value: \"scale\" column: \"...\" }, or constant"));
  EXPECT_THAT(fed, HasSubstr("[NoSuchOp] node 'odd': the op is not supported"));
  EXPECT_THAT(fed, Not(HasSubstr("rate"))) << "the loss does not need it";
}

TEST_F(LinearGraph, AnAttachedLossIsTheModelsOwn) {
  const ModelGraph model = build("attach { kind: SIGMOID prediction: 'score' }");
  const Graph graph = graph_of(model);
  EXPECT_EQ(node_of(graph, "loss/rows").op->name, "braid.SigmoidCrossEntropy");
  EXPECT_THAT(model.columns, ElementsAre("label", "x"));
  EXPECT_EQ(model.predicts, Prediction::Probability);
  EXPECT_EQ(build("attach { kind: SQUARED prediction: 'score' }").predicts, Prediction::Value);
  EXPECT_THAT(error_of("attach { kind: SIGMOID prediction: 'score' label: 'clicked' }"),
              HasSubstr("the data has no column 'clicked'"));
}

TEST_F(LinearGraph, AnAttachedLossTakesTheLogitsBehindASigmoid) {
  b.op("Identity", {b.op("Sigmoid", {logit_value})}, {}, "probable");
  const ModelGraph model = build("attach { kind: SIGMOID prediction: 'probable' }");
  const Graph graph = graph_of(model);
  EXPECT_EQ(graph.node(node_of(graph, "loss/rows").inputs[0].node).name, "score");
  EXPECT_EQ(graph.node(node_of(graph, "logit").inputs[0].node).name, "score");
}

TEST_F(LinearGraph, ASigmoidTellsWhichValueTheLogitsAre) {
  add_loss();
  b.op("Identity", {b.op("Sigmoid", {logit_value})}, {}, "predicted");
  const ModelGraph model = build(loss_field() + "prediction: 'predicted'");
  const Graph graph = graph_of(model);
  EXPECT_EQ(graph.node(node_of(graph, "logit").inputs[0].node).name, "score");
  EXPECT_THAT(error_of(loss_field() + "prediction: 'predicted' label: 'ids'"),
              HasSubstr("the label must be a column of kind LABEL"));
}

TEST_F(LinearGraph, ALossThatIsNoScalarBecomesItsMean) {
  const Output y = b.placeholder("label", DType::Float32, {-1});
  loss = b.op("SquaredDifference", {logit_value, y}, {}, "squares");
  const Graph graph = graph_of(build("loss: 'squares'"));
  EXPECT_EQ(node_of(graph, "loss/mean").op->name, "Mean");
}

TEST_F(LinearGraph, ALossOfDifferencesMakesAValueOfThePrediction) {
  const Output y = b.placeholder("label", DType::Float32, {-1});
  loss = b.op("SquaredDifference", {logit_value, y}, {}, "squares");
  b.op("Abs", {b.op("Sub", {logit_value, y})}, {}, "absolute");
  b.op("Square", {b.op("Sub", {b.op("Exp", {logit_value}), y})}, {}, "of_exponents");
  b.op("Softplus", {logit_value}, {}, "softplus");
  // As losses of TensorFlow 1: over how many rows are present, which only their shape says.
  const Output squares = b.op("SquaredDifference", {logit_value, y});
  const Output ones = b.op("Fill", {b.op("Shape", {squares}), b.constant(Tensor::scalar<float>(1))});
  b.op("DivNoNan",
       {b.op("Sum", {squares, b.constant(Tensor::scalar<std::int32_t>(0))}),
        b.op("Sum", {ones, b.constant(Tensor::scalar<std::int32_t>(0))})},
       {}, "present");
  for (const char* each : {"squares", "absolute", "present"})
    EXPECT_EQ(build(std::string("loss: '") + each + "' prediction: 'score'").predicts, Prediction::Value)
        << each;
  for (const char* each : {"of_exponents", "softplus"})
    EXPECT_EQ(build(std::string("loss: '") + each + "' prediction: 'score'").predicts,
              Prediction::Probability)
        << each;
}

TEST_F(LinearGraph, AProductOfTwoEqualDifferencesIsASquare) {
  const Output y = b.placeholder("label", DType::Float32, {-1});
  b.op("Mul", {b.op("Sub", {logit_value, y}), b.op("Sub", {logit_value, y})}, {}, "squares");
  b.op("SquaredDifference", {b.op("Log1p", {logit_value}), b.op("Log1p", {y})}, {}, "of_logarithms");
  for (const char* each : {"squares", "of_logarithms"})
    EXPECT_EQ(build(std::string("loss: '") + each + "' prediction: 'score'").predicts, Prediction::Value)
        << each;
}

/// x [?, 3] times w are three numbers a row.
class WideGraph : public GraphModelTest {
 protected:
  WideGraph() {
    x = b.placeholder("x", DType::Float32, {-1, 3});
    score = b.op("Identity", {b.matmul(x, variable("w", {3, 3}, zeros({3, 3})))}, {}, "score");
    y = b.placeholder("label", DType::Float32, {-1, 3});
    columns[2].row = {3};
  }
  const Node& output(const ModelGraph& model, const std::string& name) {
    graph = graph_of(model);
    return node_of(graph, name);
  }
  Output x, score, y;
  Graph graph;
};

TEST_F(WideGraph, LabelsBesideEachOtherAreEachAProbability) {
  b.op("Sigmoid", {score}, {}, "each");
  b.op("Identity", {b.reduce_mean(b.op("SquaredDifference", {b.op("Sigmoid", {score}), y}))}, {}, "loss");
  const ModelGraph model = build("loss: 'loss' prediction: 'each'");
  EXPECT_EQ(model.predicts, Prediction::Probability);
  EXPECT_EQ(output(model, "probability").outputs[0].shape, (Shape{-1, 3})) << "rows stay rows";
  // As TensorFlow writes the loss: with a softplus of the logits alone.
  b.op("Sub", {b.op("Softplus", {score}), b.mul(score, y)}, {}, "of_logits");
  EXPECT_EQ(build("loss: 'of_logits' prediction: 'score'").predicts, Prediction::Probability);
  const Output mask = b.op("Greater", {y, b.constant(Tensor::scalar<float>(0))});
  const Output truth = b.op("Cast", {mask}, {{"SrcT", DType::Bool}, {"DstT", DType::Float32}});
  b.op("Sub", {b.op("Softplus", {score}), b.mul(score, truth)}, {}, "of_mask");
  EXPECT_EQ(build("loss: 'of_mask' prediction: 'score'").predicts, Prediction::Value)
      << "the label is compared: its numbers are no probabilities";
}

TEST_F(WideGraph, SharesOfClassesAreALabelOfClasses) {
  b.op("Softmax", {score}, {}, "shares");
  b.op("SoftmaxCrossEntropyWithLogits", {score, y}, {}, "loss");
  for (const char* each : {"shares", "score"})
    EXPECT_EQ(build(std::string("loss: 'loss' prediction: '") + each + "'").predicts, Prediction::Classes)
        << each;
}

TEST(ClassAxisTest, IsWhatTheLabelLeaves) {
  // Logits [B, 5, 4] with a label of 4 places: five classes, which come last in all outputs.
  GraphBuilder b;
  const Output logits = b.placeholder("logits", DType::Float32, {-1, 5, 4});
  for (const auto& [places, shape] : {std::pair{4, Shape{-1, 4}}, {5, Shape{-1, 5}}}) {
    Graph graph = import_graph(b.graph());
    const worker::InputColumn label{"label", DType::Int64, {places}};
    const ValueRef value = graph.parse_value(logits.name());
    const auto predicted =
        worker::predicted_value(graph, value, nullptr, &label, worker::SaidOfPrediction::Nothing);
    EXPECT_EQ(predicted.kind, Prediction::Classes);
    worker::add_output_nodes(graph, predicted);
    EXPECT_EQ(graph.node(graph.find("class")).outputs[0].shape, shape) << places;
  }
}

TEST_F(LinearGraph, PatternsSayWhatIsTrained) {
  const Output bias = variable("bias", {}, zeros({}));
  logit_value = b.add(logit_value, bias);
  add_loss();
  const Graph frozen = graph_of(build(loss_field() + "frozen: 'b.*'"));
  EXPECT_FALSE(handle_of(frozen, "bias").attrs.get<bool>("_trainable", true));
  EXPECT_TRUE(handle_of(frozen, "w").attrs.get<bool>("_trainable", false));
  const Graph chosen = graph_of(build(loss_field() + "trainable: 'bias'"));
  EXPECT_FALSE(handle_of(chosen, "w").attrs.get<bool>("_trainable", true));
  EXPECT_THAT(error_of(loss_field() + "trainable: 'v'"),
              HasSubstr("leave no variable to train; there are 'w', 'bias'"));
  EXPECT_THAT(error_of(loss_field() + "frozen: '('"),
              HasSubstr("model.graph.frozen '(' is no regular expression"));
}

TEST_F(LinearGraph, ConstantsCanBePromoted) {
  const std::vector<float> values{1, 2, 3};
  const Output scale = b.constant(Tensor::from<float>({3}, values), "scale");
  logit_value = b.op("Sum", {b.mul(x, scale), b.constant(Tensor::scalar<std::int32_t>(1))}, {}, "scaled");
  add_loss();
  EXPECT_THAT(error_of(loss_field()), HasSubstr("the loss depends on no variable: promote"));
  const ModelGraph model = build(loss_field() + "promote: 'scale'");
  EXPECT_EQ(handle_of(graph_of(model), "scale").attrs.require<Shape>("shape"), Shape{3});
  EXPECT_EQ(model.initial.at("scale").data<float>()[2], 3);
}

TEST_F(LinearGraph, TablesAreFoundByHowTheyAreUsed) {
  const Output ids = b.placeholder("ids", DType::Int32, {-1, 2});
  const Output axis = b.constant(Tensor::scalar<std::int32_t>(0));
  const auto looked_up = [&](const Output& table) {
    return b.op("Sum", {b.op("GatherV2", {table, ids, axis}),
                        b.constant(Tensor::from<std::int32_t>({2}, std::vector<std::int32_t>{1, 2}))});
  };
  const Output table = variable("table", {10, 4}, zeros({10, 4})),
               tied = variable("tied", {10, 4}, zeros({10, 4}));
  logit_value = b.add(b.add(looked_up(b.op("Identity", {table})), looked_up(tied)), b.reduce_mean(tied));
  add_loss();
  worker::GraphModelReport report;
  const Graph graph = graph_of(build(loss_field(), &report));
  EXPECT_TRUE(handle_of(graph, "table").attrs.get<bool>("_sparse", false));
  EXPECT_FALSE(handle_of(graph, "tied").attrs.get<bool>("_sparse", true)) << "all of it is read, too";
  int gathers = 0;
  for (NodeId id = 0; id < graph.size(); ++id)
    if (graph.node(id).op->name == "ResourceGather") {
      ++gathers;
      EXPECT_EQ(graph.info(graph.node(id).inputs[1]).dtype, DType::Int64);
    }
  EXPECT_EQ(gathers, 2);
  EXPECT_THAT(report.text(), HasSubstr("'table' float32[10, 4]: trained by rows, begins with zeros"));
  EXPECT_FALSE(
      handle_of(graph_of(build(loss_field() + "sparse: 'other'")), "table").attrs.get<bool>("_sparse", true));
}

TEST_F(LinearGraph, StatisticsOfTheBatchAreUpdatedAndCountersAndSlotsAreNot) {
  add_loss();
  const auto handle = [&](const std::string& name) {
    return b.op("VarHandleOp", {}, {{"dtype", DType::Float32}, {"shape", Shape{}}, {"shared_name", name}},
                name);
  };
  const Output mean = handle("mean"), steps = handle("steps"), slot = handle("slot");
  const AttrMap of_float{{"dtype", DType::Float32}};
  b.op("AssignVariableOp", {mean, zeros({})}, of_float, "mean/Assign");
  b.op("AssignSubVariableOp", {mean, b.reduce_mean(x)}, of_float, "move_mean");
  b.op("AssignAddVariableOp", {steps, b.constant(Tensor::scalar(1.0F))}, of_float, "count");
  b.op("AssignAddVariableOp", {slot, b.op("Identity", {b.reduce_mean(x)}, {}, "gradients/x")}, of_float,
       "move_slot");
  worker::GraphModelReport report;
  EXPECT_THAT(build(loss_field(), &report).updates, ElementsAre("move_mean"));
  EXPECT_THAT(report.text(), HasSubstr("'mean' float32[]: updated in each step"));
  EXPECT_THAT(build(loss_field() + "updates: 'NONE'").updates, IsEmpty());
  EXPECT_THAT(build(loss_field() + "updates: 'move_mean'").updates, ElementsAre("move_mean"));
  const Graph graph = graph_of(build(loss_field()));
  EXPECT_FALSE(handle_of(graph, "mean").attrs.get<bool>("_trainable", false) &&
               graph.find("mean/Assign") != kNoNode);
}

TEST_F(LinearGraph, ACounterThatTheLossReadsIsKeptCounting) {
  const Output seed =
      b.op("VarHandleOp", {}, {{"dtype", DType::Int64}, {"shape", Shape{}}, {"shared_name", "seed"}}, "seed");
  const AttrMap of_int{{"dtype", DType::Int64}};
  b.op("AssignVariableOp", {seed, b.constant(Tensor::scalar<std::int64_t>(4))}, of_int, "seed/Assign");
  b.op("AssignAddVariableOp", {seed, b.constant(Tensor::scalar<std::int64_t>(1))}, of_int, "seed/next");
  const Output now = b.op("Cast", {b.op("ReadVariableOp", {seed}, of_int)},
                          {{"SrcT", DType::Int64}, {"DstT", DType::Float32}});
  logit_value = b.add(logit_value, now);
  add_loss();
  const ModelGraph model = build(loss_field());
  EXPECT_THAT(model.updates, ElementsAre("seed/next"));
  EXPECT_EQ(handle_of(graph_of(model), "seed").attrs.get<double>("_init_a", 0), 4);
}

TEST_F(LinearGraph, OtherValuesInEvaluationsMakeAGraphForInference) {
  const Output training = b.placeholder("is_training", DType::Bool, {});
  logit_value = b.op("SelectV2", {training, logit_value, b.op("Neg", {logit_value})}, {}, "chosen");
  add_loss();
  const std::string fields =
      loss_field() + "prediction: 'chosen' feeds { value: 'is_training' constant: 'true' ";
  EXPECT_EQ(build(fields + "}").inference, nullptr);
  const ModelGraph model = build(fields + "eval: 'false' }");
  ASSERT_NE(model.inference, nullptr);
  const auto fed = [](const GraphDef& def) {
    for (const NodeDef& node : def.node())
      if (node.name().starts_with("is_training")) return node.attr().at("value").tensor().tensor_content();
    return std::string("none");
  };
  EXPECT_EQ(fed(*model.graph), std::string(1, '\1'));
  EXPECT_EQ(fed(*model.inference), std::string(1, '\0'));
}

TEST_F(LinearGraph, AGradientOfANodesOwnIsRefusedWithTheWayOut) {
  logit_value = b.op("IdentityN", {logit_value}, {{"_gradient_op_type", "CustomGradient-7"}}, "act");
  add_loss();
  const std::string error = error_of(loss_field());
  EXPECT_THAT(error, HasSubstr("[IdentityN] node 'act': has a gradient of its own"));
  EXPECT_THAT(error, HasSubstr("gradients: KEEP with train_op"));
}

TEST_F(LinearGraph, SwishIsDifferentiatedAsItIs) {
  const Output product = b.mul(logit_value, b.op("Sigmoid", {logit_value}));
  logit_value = b.op("IdentityN", {product}, {{"_gradient_op_type", "CustomGradient-7"}}, "act");
  add_loss();
  EXPECT_NO_THROW(build(loss_field()));
}

TEST_F(LinearGraph, WhatOnlyThePredictionReadsStaysAsItIs) {
  add_loss();
  const Output offset = variable("offset", {}, b.constant(Tensor::scalar(2.0F)));
  b.add(logit_value, offset);
  const Output shown = b.op("AddV2", {logit_value, offset}, {}, "shown");
  const Output training = b.placeholder("flag", DType::Bool, {});
  b.op("SelectV2", {training, shown, shown}, {}, "chosen");
  worker::GraphModelReport report;
  const ModelGraph model = build(
      loss_field() + "prediction: 'chosen' feeds { value: 'flag' constant: 'true' eval: 'false' }", &report);
  EXPECT_THAT(report.text(), HasSubstr("'offset' float32[]: does not reach the loss"));
  for (const NodeDef& node : model.inference->node()) EXPECT_NE(node.name(), "offset") << "a constant now";
}

}  // namespace
}  // namespace braid::testing
