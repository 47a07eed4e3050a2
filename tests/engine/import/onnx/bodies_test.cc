// If, Loop and Scan of ONNX models, as far as they need no control flow.
#include <gmock/gmock.h>

#include "base/error.h"
#include "tests/engine/import/onnx/onnx_model.h"

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
