// A whole TensorFlow 1.x training graph (golden/make_training_graph.py: reference variables, gradient nodes,
// ApplyGradientDescent, Save and Restore) against what TensorFlow computed in 100 steps: once with the
// gradient nodes that it made, once with ours.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/error.h"
#include "engine/autodiff/gradients.h"
#include "engine/import/import.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/interpreter.h"

namespace braid {
namespace {

namespace fs = std::filesystem;
using testing::Interpreter;

const fs::path kFolder = fs::path(BRAID_SOURCE_DIR) / "tests/engine/autodiff/golden";
constexpr std::int64_t kRows = 60;
const std::string kLoss = "softmax_cross_entropy_loss/value";

Tensor tensor_of(const nlohmann::json& entry) {
  return Tensor::from<float>(Shape(entry.at("shape").get<std::vector<std::int64_t>>()),
                             entry.at("values").get<std::vector<float>>());
}

void expect_near(const Tensor& actual, const Tensor& expected, float tolerance, const std::string& what) {
  ASSERT_EQ(actual.shape(), expected.shape()) << what;
  EXPECT_THAT(actual.data<float>(),
              ::testing::Pointwise(::testing::FloatNear(tolerance), expected.data<float>()))
      << what;
}

class TrainingGraphTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ifstream(kFolder / "reference.json") >> reference_;
    read_rows();
  }

  void read_rows() {
    std::vector<float> features;
    std::vector<float> labels;
    std::ifstream file(kFolder / "rows.txt");
    for (std::string line; std::getline(file, line);) {
      std::istringstream stream(line);
      std::vector<float> fields;
      for (std::string field; std::getline(stream, field, ',');) fields.push_back(std::stof(field));
      features.insert(features.end(), fields.begin(), fields.begin() + 4);
      for (int label = 0; label < 3; ++label)
        labels.push_back(static_cast<int>(fields.at(4)) == label ? 1.0F : 0.0F);
    }
    feeds_["Placeholder"] = Tensor::from<float>({kRows, 4}, features);
    feeds_["Placeholder_1"] = Tensor::from<float>({kRows, 3}, labels);
  }

  Graph load(std::vector<std::string> roots) {
    return import_graph(read_graph_file(kFolder / "graph.pbtxt"), "train", {.roots = std::move(roots)});
  }

  void set_initial(Interpreter& interpreter) {
    for (const auto& [name, entry] : reference_["initial"].items())
      interpreter.variables()[name] = tensor_of(entry);
  }

  void expect_variables(Interpreter& interpreter, const std::string& key, float tolerance) {
    for (const auto& [name, entry] : reference_[key].items()) {
      expect_near(interpreter.variables()[name], tensor_of(entry), tolerance, key + " " + name);
    }
  }

  nlohmann::json reference_;
  Interpreter::Feeds feeds_;
};

TEST_F(TrainingGraphTest, TrainsWithItsOwnGradientNodes) {
  const auto targets = reference_["targets"].get<std::vector<std::string>>();
  std::vector<std::string> roots = targets;
  roots.push_back(kLoss);
  const Graph graph = load(roots);
  Interpreter interpreter(graph);
  set_initial(interpreter);
  const auto losses = reference_["losses"].get<std::vector<double>>();
  for (std::size_t step = 0; step < 100; ++step) {
    const Tensor loss = interpreter.run(feeds_, {kLoss}, targets)[0];
    ASSERT_NEAR(loss.data<float>()[0], losses[step], 2e-6) << "step " << step;
  }
  expect_variables(interpreter, "after_step100", 2e-6F);
}

TEST_F(TrainingGraphTest, OurGradientsAreTensorFlows) {
  Graph graph = load({kLoss});
  const auto gradients = add_gradients(graph, graph.parse_value(kLoss));
  ASSERT_EQ(gradients.size(), 4u);
  std::vector<std::string> fetches{kLoss};
  for (const VariableGradient& gradient : gradients) fetches.push_back(graph.value_name(gradient.dense));
  Interpreter interpreter(graph);
  set_initial(interpreter);
  const auto learning_rate = reference_["learning_rate"].get<float>();
  const auto losses = reference_["losses"].get<std::vector<double>>();
  for (std::size_t step = 0; step < 100; ++step) {
    const std::vector<Tensor> values = interpreter.run(feeds_, fetches);
    ASSERT_NEAR(values[0].data<float>()[0], losses[step], 2e-6) << "step " << step;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const std::string& name = gradients[i].variable.name;
      if (step == 0) expect_near(values[i + 1], tensor_of(reference_["step1"]["grads"][name]), 1e-6F, name);
      auto weights = interpreter.variables()[name].data<float>();
      for (std::size_t k = 0; k < weights.size(); ++k)
        weights[k] -= learning_rate * values[i + 1].data<float>()[k];
    }
  }
  expect_variables(interpreter, "after_step100", 2e-6F);
}

TEST_F(TrainingGraphTest, TheWholeFileIsRefusedOnlyForSaveAndRestore) {
  const ImportResult result = try_import_graph(read_graph_file(kFolder / "graph.pbtxt"));
  std::set<std::string> ops;
  for (const ImportProblem& problem : result.problems) ops.insert(problem.op);
  EXPECT_THAT(ops, ::testing::IsSubsetOf({"SaveV2", "RestoreV2", "RandomUniform"}));
}

}  // namespace
}  // namespace braid
