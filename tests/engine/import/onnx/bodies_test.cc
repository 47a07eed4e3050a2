// If, Loop and Scan of ONNX models, as far as they need no control flow.
#include <gmock/gmock.h>

#include <limits>

#include "base/error.h"
#include "engine/import/import.h"
#include "proto/graph.pb.h"
#include "tests/engine/import/onnx/onnx_model.h"
#include "tests/engine/testing/interpreter.h"

namespace braid::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A branch that gives op(x), which it sees from outside.
std::string branch(const std::string& name, const std::string& op) {
  return "attribute { name: \"" + name + "\" type: GRAPH g { node { op_type: \"" + op +
         "\" input: \"x\" output: \"r\" } output { name: \"r\" } } } ";
}

TEST(OnnxBodiesTest, AnIfComputesBothBranchesAndChooses) {
  const std::string text =
      onnx_model(16, "node { op_type: \"If\" input: \"c\" output: \"y\" " + branch("then_branch", "Neg") +
                         branch("else_branch", "Abs") + "} " + onnx_input("x", kOnnxFloat, {2}) +
                         onnx_input("c", 9, {}) + kY);
  for (const bool condition : {true, false})
    EXPECT_THAT(float_values(run_onnx(text, {{"x", floats({2}, {-1, 2})}, {"c", Tensor::scalar(condition)}})),
                condition ? ElementsAre(1, -2) : ElementsAre(1, 2));
}

TEST(OnnxBodiesTest, BranchesOfABatchOfUnknownSizeAreChosen) {
  const std::string text =
      onnx_model(16, "node { op_type: \"If\" input: \"c\" output: \"y\" " + branch("then_branch", "Neg") +
                         branch("else_branch", "Abs") + "} " + onnx_input("x", kOnnxFloat, {-1, 1}) +
                         onnx_input("c", 9, {}) + kY);
  for (const bool condition : {true, false}) {
    const Tensor y = run_onnx(text, {{"x", floats({2, 1}, {-1, 2})}, {"c", Tensor::scalar(condition)}});
    EXPECT_EQ(y.shape(), Shape({2, 1}));
    EXPECT_THAT(float_values(y), condition ? ElementsAre(1, -2) : ElementsAre(1, 2));
  }
}

/// The gradient of (c ? log(x) : -x) by x, a variable that is 0.
float gradient_of_choice(bool condition) {
  return gradient_by_x(onnx_model(16, "node { op_type: \"If\" input: \"c\" output: \"y\" " +
                                          branch("then_branch", "Log") + branch("else_branch", "Neg") + "} " +
                                          onnx_input("x", kOnnxFloat, {}) + onnx_input("c", 9, {}) + kY),
                       0, {{"c", Tensor::scalar(condition)}});
}

TEST(OnnxBodiesTest, NoNanComesOutOfABranchThatIsNotTaken) {
  EXPECT_EQ(gradient_of_choice(false), -1);
  EXPECT_EQ(gradient_of_choice(true), std::numeric_limits<float>::infinity());
}

TEST(OnnxBodiesTest, AnIfWithAConstantNeedsOneBranchOnly) {
  const std::string text =
      onnx_model(16, "node { op_type: \"If\" input: \"c\" output: \"y\" " + branch("then_branch", "Neg") +
                         branch("else_branch", "NoSuchOp") +
                         "} initializer { name: \"c\" data_type: 9 int32_data: 1 } " +
                         onnx_input("x", kOnnxFloat, {1}) + kY);
  EXPECT_THAT(float_values(run_onnx(text, {{"x", floats({1}, {3})}})), ElementsAre(-3));
}

// state = state + x; also gives every state.
const std::string kBody =
    "attribute { name: \"body\" type: GRAPH g { "
    "input { name: \"i\" } input { name: \"going\" } input { name: \"s\" } "
    "node { op_type: \"Identity\" input: \"going\" output: \"going_out\" } "
    "node { op_type: \"Add\" input: \"s\" input: \"x\" output: \"sum\" } "
    "node { op_type: \"Identity\" input: \"sum\" output: \"seen\" } "
    "output { name: \"going_out\" } output { name: \"sum\" } output { name: \"seen\" } } } ";

TEST(OnnxBodiesTest, ALoopOfKnownLengthIsUnrolled) {
  const std::string text = onnx_model(
      16, "node { op_type: \"Loop\" input: \"n\" input: \"\" input: \"x\" output: \"last\" output: \"y\" " +
              kBody + "} initializer { name: \"n\" data_type: 7 int64_data: 3 } " +
              onnx_input("x", kOnnxFloat, {1}) + kY);
  const Tensor y = run_onnx(text, {{"x", floats({1}, {2})}});
  EXPECT_EQ(y.shape(), Shape({3, 1}));
  EXPECT_THAT(float_values(y), ElementsAre(4, 6, 8));
}

TEST(OnnxBodiesTest, ALoopOfUnknownLengthIsRefused) {
  const std::string text = onnx_model(
      16, "node { op_type: \"Loop\" input: \"n\" input: \"\" input: \"x\" output: \"last\" output: \"y\" " +
              kBody + "} " + onnx_input("n", kOnnxInt64, {}) + onnx_input("x", kOnnxFloat, {1}) + kY);
  const TempDir dir;
  const OnnxImport model = try_import_onnx(write_onnx(dir, text));
  ASSERT_EQ(model.problems.size(), 1U);
  EXPECT_THAT(model.problems[0].reason,
              HasSubstr("control flow is not supported: the trip count must be a constant"));
}

// state = op(state), as long as the state is below 10.
std::string until_ten(const std::string& op) {
  return "attribute { name: \"body\" type: GRAPH g { "
         "input { name: \"i\" } input { name: \"going\" } input { name: \"s\" } "
         "node { op_type: \"" +
         op +
         "\" input: \"s\" input: \"x\" output: \"next\" } "
         "node { op_type: \"Less\" input: \"next\" input: \"ten\" output: \"going_out\" } "
         "output { name: \"going_out\" } output { name: \"next\" } } } ";
}
std::string loop_until_ten(int most) {
  return onnx_model(16, "node { op_type: \"Loop\" input: \"n\" input: \"go\" input: \"x\" output: \"y\" " +
                            until_ten("Add") +
                            "} initializer { name: \"n\" data_type: 7 int64_data: " + std::to_string(most) +
                            " } initializer { name: \"ten\" data_type: 1 float_data: 10 } "
                            "initializer { name: \"go\" data_type: 9 int32_data: 1 } " +
                            onnx_input("x", kOnnxFloat, {}) + kY);
}

TEST(OnnxBodiesTest, ALoopWhoseConditionDataDecideTakesItsRoundsUpToTheTripCount) {
  const std::string text = loop_until_ten(4);
  for (const auto& [x, y] : {std::pair{12.0F, 24.0F}, {4.0F, 12.0F}, {1.0F, 5.0F}, {0.0F, 0.0F}})
    EXPECT_EQ(float_values(run_onnx(text, {{"x", Tensor::scalar(x)}})).at(0), y) << "x is " << x;
}

TEST(OnnxBodiesTest, TooManyRoundsThatDataDecideAreRefused) {
  const TempDir dir;
  const OnnxImport model = try_import_onnx(write_onnx(dir, loop_until_ten(100000)));
  ASSERT_EQ(model.problems.size(), 1U);
  EXPECT_THAT(model.problems[0].reason, HasSubstr("or its trip count at most 256"));
}

TEST(OnnxBodiesTest, AScanWalksOverItsInputs) {
  const std::string body =
      "attribute { name: \"body\" type: GRAPH g { input { name: \"s\" } input { name: \"v\" } "
      "node { op_type: \"Add\" input: \"s\" input: \"v\" output: \"sum\" } "
      "node { op_type: \"Identity\" input: \"sum\" output: \"seen\" } "
      "output { name: \"sum\" } output { name: \"seen\" } } } "
      "attribute { name: \"num_scan_inputs\" i: 1 type: INT } "
      "attribute { name: \"scan_input_directions\" ints: 1 type: INTS } ";
  const std::string text = onnx_model(
      16, "node { op_type: \"Scan\" input: \"x\" input: \"v\" output: \"last\" output: \"y\" " + body + "} " +
              onnx_input("x", kOnnxFloat, {}) + onnx_input("v", kOnnxFloat, {3}) + kY);
  EXPECT_THAT(float_values(run_onnx(text, {{"x", floats({}, {10})}, {"v", floats({3}, {1, 2, 3})}})),
              ElementsAre(13, 15, 16));
}

}  // namespace
}  // namespace braid::testing
