// Graphs as models of whole jobs. A model of the zoo that was written to a file trains from that file as the
// zoo's own does, bit for bit: alone, on parameter servers, by all-reduce, resumed, evaluated. A graph as
// TensorFlow 1 writes it, with gradients and an optimizer, trains with its own as with those of the job.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
#include <span>

#include "base/files.h"
#include "base/formats/npy.h"
#include "base/formats/zip.h"
#include "proto/onnx.pb.h"
#include "tests/integration/checkpoints.h"

namespace braid::integration {
namespace {

using ::testing::HasSubstr;

class TrainedGraphTest : public IntegrationTest {
 protected:
  static Job zoo(const char* file, std::vector<std::string> set) {
    set.insert(set.end(),
               {"runtime.intra_op_threads=1", "runtime.device=CPU", "evaluation.enabled=false",
                "streams.policy=NONE", "streams.count=1", "steps=12", "input.global_batch_size=32"});
    return {file, "", std::move(set)};
  }

  /// The job's model as a file, and the job with that in place of it.
  Job as_graph(const std::string& name, const Job& job) {
    const std::string file = path(name + ".pb"), predicting = path(name + "_predicting.pb");
    std::vector<std::string> arguments = job.arguments();
    arguments.erase(arguments.begin());
    std::string loss;
    for (const bool inference : {false, true}) {
      std::vector<std::string> all{"graph", "export", "--out", inference ? predicting : file};
      all.insert(all.end(), arguments.begin(), arguments.end());
      if (inference) all.emplace_back("--inference");
      const auto process = run(name + "_export", all);
      EXPECT_EQ(process->exit_code(), 0) << process->err();
      const std::string out = process->out(), mark = "loss '";
      if (inference) continue;
      const std::size_t at = out.find(mark) + mark.size();
      loss = out.substr(at, out.find('\'', at) - at);
    }
    return job.with({"model.name=", "name=" + name, "model.graph.file=" + file, "model.graph.loss=" + loss,
                     "model.graph.inference_file=" + predicting, "model.graph.prediction=logit",
                     "model.graph.updates=NONE"});
  }

  std::vector<double> losses(const std::string& name, const Job& job, Cluster::Shape shape,
                             std::vector<std::string> arguments = {}, std::uint64_t first = 0) {
    Cluster cluster(directory() / name, job, shape, std::move(arguments));
    cluster.expect_success();
    return cluster.mean_losses(first);
  }
};

TEST_F(TrainedGraphTest, AModelOfTheZooTrainsFromItsFileAsItDoesItself) {
  const Job job = zoo("wide_deep_generated.pbtxt", {"model.hidden=8,4", "model.dropout=0.2"});
  const Job graph = as_graph("wide_deep", job);
  for (const auto& [strategy, shape] : std::map<std::string, Cluster::Shape>{
           {"LOCAL", {1, 0}}, {"ALLREDUCE", {2, 0}}, {"HYBRID", {2, 0}}, {"PS", {2, 1}}}) {
    const std::string kind = "strategy.kind=" + strategy;
    const auto expected = losses(strategy + "_zoo", job.with({kind}), shape);
    ASSERT_EQ(expected.size(), 12U);
    EXPECT_EQ(losses(strategy + "_graph", graph.with({kind}), shape), expected) << strategy;
  }
}

TEST_F(TrainedGraphTest, TablesOfListsAndSeveralLayersToo) {
  const Job job = zoo("din_generated.pbtxt", {"model.hidden=8"});
  const Job graph = as_graph("din", job);
  EXPECT_EQ(losses("graph", graph, {}), losses("zoo", job, {}));
}

TEST_F(TrainedGraphTest, StagedAheadAndOverStreamsItKeepsItsLosses) {
  const Job graph = as_graph("wide_deep", zoo("wide_deep_generated.pbtxt", {"model.hidden=8,4"}));
  const auto expected = losses("plain", graph, {});
  EXPECT_EQ(losses("staged", graph.with({"staging.auto_stage=true"}), {}), expected);
  EXPECT_EQ(losses("streams", graph.with({"streams.count=2", "streams.policy=FULL"}), {}), expected);
}

TEST_F(TrainedGraphTest, AResumedRunGoesOnWithTheSameBits) {
  const Job graph =
      as_graph("wide_deep", zoo("wide_deep_generated.pbtxt", {"model.hidden=8,4", "model.dropout=0.2"}));
  const auto whole = losses("whole", graph, {});
  const Job cut = graph.with(checkpoints_in(directory() / "checkpoints", 6));
  losses("first", cut.with({"steps=6"}), {});
  const auto rest = losses("second", cut, {}, {"--resume"}, 6);
  ASSERT_EQ(rest.size(), 6U);
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), whole.begin() + 6));
}

TEST_F(TrainedGraphTest, EvaluationsMeasureWhatTheZoosWouldMeasure) {
  const Job job = zoo("wide_deep_generated.pbtxt", {"model.hidden=8,4", "model.dropout=0.1"});
  const Job graph = as_graph("wide_deep", job);
  std::vector<double> measured;
  for (const Job& each : {job, graph}) {
    Cluster cluster(directory() / ("evaluated" + std::to_string(measured.size())),
                    each.with({"evaluation.enabled=true", "input.generator.test_rows=500"}), {});
    cluster.expect_success();
    measured.push_back(result_of(cluster.worker(0)).quality.value_or(-1));
  }
  EXPECT_GT(measured[0], 0);
  EXPECT_EQ(measured[0], measured[1]);
}

TEST_F(TrainedGraphTest, TablesThatBeginWithAFilesValuesAreWholeOnServers) {
  const Job graph = as_graph("wide_deep", zoo("wide_deep_generated.pbtxt", {"model.hidden=8,4"}));
  std::vector<float> values(24 * 8);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7) / 100;
  {
    ZipWriter zip(path("first.npz"));
    const std::vector<std::int64_t> shape{24, 8};
    const std::string array = format_npy(DType::Float32, shape, std::as_bytes(std::span(values)));
    const std::span<const std::byte> bytes = std::as_bytes(std::span(array));
    zip.add("deep/hour/table.npy", std::span(&bytes, 1));
    zip.finish();
  }
  const Job begun = graph.with({"model.graph.initial_file=" + path("first.npz")});
  const auto expected = losses("local", begun, {});
  EXPECT_NE(expected, losses("without", graph, {}));
  const auto shared = losses("servers", begun.with({"strategy.kind=PS"}), {2, 1});
  ASSERT_EQ(shared.size(), expected.size());
  for (std::size_t i = 0; i < shared.size(); ++i)
    EXPECT_NEAR(shared[i], expected[i], 1e-5 * expected[i]) << i;
  const auto spread = losses(
      "workers",
      begun.with({"strategy.kind=HYBRID", "strategy.hybrid=table { match: '.*/table' plan: ROW }"}), {2, 0});
  ASSERT_EQ(spread.size(), expected.size());
  for (std::size_t i = 0; i < spread.size(); ++i) EXPECT_NEAR(spread[i], expected[i], 1e-6) << i;
  Cluster moving(directory() / "moving", begun.with({"strategy.kind=PS", "optimizer.kind=MOMENTUM"}), {1, 1});
  EXPECT_EQ(moving.worker(0).exit_code(), 2);
  EXPECT_THAT(moving.worker(0).err(),
              HasSubstr("'deep/hour/table' is updated by rows and is no sparse table"));
}

// As TensorFlow 1 writes it.

std::string node(const std::string& name, const std::string& op, const std::vector<std::string>& inputs,
                 const std::string& attrs = "") {
  std::string text = "node { name: '" + name + "' op: '" + op + "' ";
  for (const std::string& input : inputs) text += "input: '" + input + "' ";
  return text + attrs + "}\n";
}

std::string type(const std::string& name, const std::string& dtype) {
  return "attr { key: '" + name + "' value { type: " + dtype + " } } ";
}

std::string shape(const std::vector<int>& dims) {
  std::string text = "attr { key: 'shape' value { shape { ";
  for (const int dim : dims) text += "dim { size: " + std::to_string(dim) + " } ";
  return text + "} } } ";
}

std::string scalar(const std::string& name, float value) {
  return node(name, "Const", {},
              type("dtype", "DT_FLOAT") +
                  "attr { key: 'value' value { tensor { dtype: DT_FLOAT tensor_shape {} "
                  "float_val: " +
                  std::to_string(value) + " } } } ");
}

std::string axes(const std::string& name, int axis) {
  return node(name, "Const", {},
              type("dtype", "DT_INT32") +
                  "attr { key: 'value' value { tensor { dtype: DT_INT32 tensor_shape { dim { "
                  "size: 1 } } int_val: " +
                  std::to_string(axis) + " } } } ");
}

/// A regression of y on x [?, 2]: reference variables, gradients and Momentum of its own, a saver that no
/// step needs.
std::string regression() {
  const std::string f = type("T", "DT_FLOAT"), d = type("dtype", "DT_FLOAT");
  const std::string slot = "w/Momentum";
  std::string text =
      node("x", "Placeholder", {}, d + shape({-1, 2})) + node("y", "Placeholder", {}, d + shape({-1}));
  for (const std::string& name : {std::string("w"), slot})
    text += node(name, "VariableV2", {}, d + shape({2, 1})) +
            node(name + "/zeros", "ZerosLike", {"like"}, f) +
            node(name + "/Assign", "Assign", {name, name + "/zeros"}, f);
  text += node(
      "like", "Const", {},
      d + "attr { key: 'value' value { tensor { dtype: DT_FLOAT tensor_shape { dim { size: 2 } dim { size: 1 "
          "} } float_val: 0 } } } ");
  text += node("w/read", "Identity", {"w"}, f) + node("product", "MatMul", {"x", "w/read"}, f) +
          axes("last", 1) + node("guess", "Sum", {"product", "last"}, f + type("Tidx", "DT_INT32")) +
          node("error", "Sub", {"guess", "y"}, f) + node("squares", "Square", {"error"}, f) +
          axes("first", 0) + node("loss", "Mean", {"squares", "first"}, f + type("Tidx", "DT_INT32"));
  text += node("gradients/rows", "Size", {"error"}, f) +
          node("gradients/count", "Cast", {"gradients/rows"},
               type("SrcT", "DT_INT32") + type("DstT", "DT_FLOAT")) +
          scalar("gradients/two", 2) +
          node("gradients/scale", "RealDiv", {"gradients/two", "gradients/count"}, f) +
          node("gradients/error", "Mul", {"error", "gradients/scale"}, f) + axes("gradients/dim", 1) +
          node("gradients/column", "ExpandDims", {"gradients/error", "gradients/dim"},
               f + type("Tdim", "DT_INT32")) +
          node("gradients/w", "MatMul", {"x", "gradients/column"},
               f + "attr { key: 'transpose_a' value { b: true } } ");
  text += node("rate", "Placeholder", {}, d + shape({})) + scalar("momentum", 0.9F) +
          node("update", "ApplyMomentum", {"w", slot, "rate", "gradients/w", "momentum"}, f) +
          node("train", "NoOp", {"^update"});
  return text + node("save/op", "SomethingThatIsNotThere", {"w"});
}

class RegressionTest : public TrainedGraphTest {
 protected:
  RegressionTest() {
    write("graph.pbtxt", regression());
    std::ofstream data(path("data.csv"));
    data << "a,b,y\n";
    for (int r = 0; r < 400; ++r) {
      const double a = (r * 37 % 101) / 50.0 - 1, c = (r * 53 % 97) / 50.0 - 1;
      data << a << "," << c << "," << 2 * a - 3 * c << "\n";
    }
    write("job.pbtxt",
          "steps: 30 model { graph { file: '" + path("graph.pbtxt") +
              "' loss: 'loss' prediction: 'guess' label: 'y' } } input { format: CSV train_files: "
              "'data.csv' test_files: 'data.csv' global_batch_size: 40 csv { header: true }\n"
              "columns { name: 'a' kind: NUMERIC output: 'x' } columns { name: 'b' kind: NUMERIC "
              "output: 'x' } columns { name: 'y' kind: NUMERIC output: 'y' } }\n"
              "optimizer { kind: MOMENTUM learning_rate: 0.05 momentum: 0.9 }");
  }
  Job job(std::vector<std::string> set) const {
    set.insert(set.end(), {"runtime.intra_op_threads=1", "runtime.device=CPU"});
    return {path("job.pbtxt"), directory(), std::move(set)};
  }
  static std::vector<std::string> keeping() {
    return {"model.graph.gradients=KEEP", "model.graph.train_op=train",
            "model.graph.feeds=value: 'rate' constant: '0.05'"};
  }
};

TEST_F(RegressionTest, LearnsWithTheJobsGradientsAndPredicts) {
  const Job trained = job(checkpoints_in(directory() / "checkpoints", 30));
  Cluster cluster(directory() / "job", trained, {});
  cluster.expect_success();
  EXPECT_LT(losses_of(cluster.steps_file(0)).back(), 0.01);
  const Values values = values_of_newest(directory() / "checkpoints");
  EXPECT_NEAR(values.at("w")[0], 2, 0.2);
  EXPECT_NEAR(values.at("w")[1], -3, 0.2);
  std::vector<std::string> arguments{"predict"};
  const std::vector<std::string> of_job = trained.arguments();
  arguments.insert(arguments.end(), of_job.begin() + 1, of_job.end());
  arguments.insert(arguments.end(),
                   {"--checkpoint", path("checkpoints"), "--in", path("data.csv"), "--out", path("out.csv")});
  const auto predicted = run("predict", arguments);
  ASSERT_EQ(predicted->exit_code(), 0) << predicted->err();
  std::ifstream out(path("out.csv"));
  std::string header, line;
  std::getline(out, header);
  std::getline(out, line);
  EXPECT_THAT(header, HasSubstr("value"));
  EXPECT_NEAR(std::stod(line.substr(line.find(',') + 1)), 2 * -1 - 3 * -1, 0.3);
}

TEST_F(RegressionTest, GradientsThatAreKeptGiveTheSameLosses) {
  const auto redone = losses("redo", job({}), {});
  for (const auto& [strategy, workers] : std::map<std::string, Cluster::Shape>{
           {"LOCAL", {1, 0}}, {"ALLREDUCE", {2, 0}}, {"HYBRID", {2, 0}}, {"PS", {2, 1}}}) {
    const auto kept = losses("keep_" + strategy, job(keeping()).with({"strategy.kind=" + strategy}), workers);
    ASSERT_EQ(kept.size(), redone.size());
    for (std::size_t i = 0; i < kept.size(); ++i)
      EXPECT_NEAR(kept[i], redone[i], 1e-5 * (1 + redone[i])) << strategy << i;
  }
}

TEST_F(RegressionTest, LearnsInSixteenBits) {
  const auto wide = losses("wide", job({}), {});
  for (const auto& [strategy, workers] :
       std::map<std::string, Cluster::Shape>{{"LOCAL", {1, 0}}, {"ALLREDUCE", {2, 0}}, {"PS", {2, 1}}})
    for (const char* precision : {"BF16", "FP16"}) {
      SCOPED_TRACE(strategy + ", " + precision);
      const auto narrow =
          losses("narrow", job({std::string("runtime.precision=") + precision, "strategy.kind=" + strategy}),
                 workers);
      EXPECT_NE(narrow, wide);
      EXPECT_LT(narrow.back(), 0.02);
    }
  const auto kept = losses("kept", job(keeping()).with({"runtime.precision=BF16"}), {});
  EXPECT_LT(kept.back(), 0.02);
  const auto refused = run("refused", job(keeping()).with({"runtime.precision=FP16"}).arguments());
  EXPECT_EQ(refused->exit_code(), 2);
  EXPECT_THAT(refused->err(),
              HasSubstr("model.graph.gradients KEEP keeps gradients of one that is not scaled"));
}

TEST_F(RegressionTest, TheFrontDoorMakesTheJob) {
  const std::vector<std::string> flags{
      "train", "--graph", path("graph.pbtxt"), "--loss",         "loss", "--prediction",
      "guess", "--data",  path("data.csv"),    "--label-column", "y",    "--label",
      "y"};
  auto printing = flags;
  printing.emplace_back("--print-job");
  const auto printed = run("print", printing);
  EXPECT_EQ(printed->exit_code(), 0) << printed->err();
  EXPECT_THAT(printed->out(), HasSubstr("output: \"x\""));
  auto training = flags;
  for (const char* set : {"epochs=3", "runtime.device=CPU", "input.shuffle=false"})
    training.insert(training.end(), {"--set", set});
  const auto trained = run("train", training);
  EXPECT_EQ(trained->exit_code(), 0) << trained->err();
  EXPECT_GT(result_of(*trained).steps, 20U);
}

TEST_F(RegressionTest, NumberedColumnsGoToThePlaceholderOfTheirName) {
  std::string text = "z,x_0,x_1,y\n";
  for (int i = 0; i < 64; ++i) text += fmt::format("{},{},{},{}\n", i, i % 7, i % 5, i % 3);
  write_file_atomically(path("numbered.csv"), text);
  const auto printed =
      run("print", {"train", "--graph", path("graph.pbtxt"), "--loss", "loss", "--prediction", "guess",
                    "--data", path("numbered.csv"), "--label-column", "y", "--label", "y", "--set",
                    "checkpoint.directory=" + path("numbered"), "--print-job"});
  ASSERT_EQ(printed->exit_code(), 0) << printed->err();
  write_file_atomically(path("numbered.pbtxt"), printed->out());
  const auto trained =
      run("train", {"train", "--job", path("numbered.pbtxt"), "--set", "runtime.device=CPU"});
  EXPECT_EQ(trained->exit_code(), 0) << trained->err();
  EXPECT_THAT(trained->err(), ::testing::Not(HasSubstr("has no effect"))) << "of what the printed job says";
  write_file_atomically(path("rows.csv"), "z,x_0,x_1\n1,2,3\n4,5,6\n");
  const auto predicted =
      run("predict", {"predict", "--job", path("numbered.pbtxt"), "--checkpoint", path("numbered"), "--in",
                      path("rows.csv"), "--out", path("predicted.csv")});
  EXPECT_EQ(predicted->exit_code(), 0) << predicted->err() << ", without the label that the loss reads";
}

TEST_F(RegressionTest, ACheckSaysWhatWouldBeTrainedOrWhatIsInTheWay) {
  const auto good = run("good", {"graph", "check", path("graph.pbtxt"), "--train", "--loss", "loss",
                                 "--prediction", "guess", "--label-column", "y"});
  EXPECT_EQ(good->exit_code(), 0) << good->out() << good->err();
  EXPECT_THAT(good->out(), HasSubstr("'w' float32[2, 1]: trained, begins with zeros"));
  EXPECT_THAT(good->out(), HasSubstr("it can be trained"));
  const auto bad = run(
      "bad", {"graph", "check", path("graph.pbtxt"), "--train", "--loss", "lss", "--prediction", "save/op"});
  EXPECT_EQ(bad->exit_code(), 2);
  EXPECT_THAT(bad->out(), HasSubstr("has no value 'lss'; did you mean 'loss'?"));
}

/// x [?, 2] times an initializer.
std::string onnx_regression() {
  onnx::ModelProto model;
  model.set_ir_version(8);
  auto& set = *model.add_opset_import();
  set.set_domain("");
  set.set_version(17);
  onnx::GraphProto& graph = *model.mutable_graph();
  const auto add_value = [](onnx::ValueInfoProto& value, const char* name, int width) {
    value.set_name(name);
    auto& tensor = *value.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(onnx::TensorProto::FLOAT);
    tensor.mutable_shape()->add_dim()->set_dim_param("batch");
    tensor.mutable_shape()->add_dim()->set_dim_value(width);
  };
  add_value(*graph.add_input(), "x", 2);
  add_value(*graph.add_output(), "guess", 1);
  onnx::TensorProto& weights = *graph.add_initializer();
  weights.set_name("weights");
  weights.set_data_type(onnx::TensorProto::FLOAT);
  weights.add_dims(2);
  weights.add_dims(1);
  weights.add_float_data(0.5F);
  weights.add_float_data(-0.5F);
  onnx::NodeProto& product = *graph.add_node();
  product.set_op_type("MatMul");
  product.add_input("x");
  product.add_input("weights");
  product.add_output("guess");
  return model.SerializeAsString();
}

TEST_F(RegressionTest, InitializersOfOnnxAreTrained) {
  write("model.onnx", onnx_regression());
  const Job onnx = job({"model.graph.file=" + path("model.onnx"),
                        "model.graph.loss=", "model.graph.attach=kind: SQUARED label: 'y'"})
                       .with(checkpoints_in(directory() / "checkpoints", 30));
  const auto losses = train("onnx", onnx);
  EXPECT_LT(losses.back(), 0.01);
  const Values values = values_of_newest(directory() / "checkpoints");
  ASSERT_TRUE(values.contains("weights"));
  EXPECT_NEAR(values.at("weights")[0], 2, 0.2);
}

TEST_F(RegressionTest, WrongJobsAreRefused) {
  const auto refused = [this](std::vector<std::string> set) {
    const auto process = run("refused", job(std::move(set)).arguments());
    EXPECT_EQ(process->exit_code(), 2);
    return process->err();
  };
  EXPECT_THAT(refused({"model.name=mlp"}), HasSubstr("model.name and model.graph are both set"));
  EXPECT_THAT(refused({"model.graph.loss="}), HasSubstr("model.graph.loss is missing"));
  EXPECT_THAT(refused({"model.graph.gradients=KEEP"}), HasSubstr("KEEP needs model.graph.train_op"));
  EXPECT_THAT(refused({"model.graph.gradients=KEEP", "model.graph.train_op=train"}),
              HasSubstr("its learning rate ('rate') is no constant"));
  EXPECT_THAT(refused({"model.graph.loss=save/op"}), HasSubstr("[SomethingThatIsNotThere] node 'save/op'"));
  EXPECT_THAT(refused({"model.graph.file=" + path("nothing.pb")}), HasSubstr("nothing.pb"));
}

}  // namespace
}  // namespace braid::integration
