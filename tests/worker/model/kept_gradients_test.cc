// Gradients that a graph of TensorFlow 1 computes itself, and what applies them.
#include "worker/model/kept_gradients.h"

#include <gmock/gmock.h>

#include "base/formats/npy.h"
#include "base/formats/zip.h"
#include "tests/worker/model/graph_model.h"

namespace braid::testing {
namespace {

using ::testing::HasSubstr;

class KeptGradientsTest : public GraphModelTest {
 protected:
  KeptGradientsTest() {
    const Output x = b.placeholder("x", DType::Float32, {-1, 3});
    w = b.op("VarHandleOp", {}, {{"dtype", DType::Float32}, {"shape", Shape{10, 3}}, {"shared_name", "w"}},
             "w");
    b.op("AssignVariableOp", {w, zeros({10, 3})}, of_float, "w/Assign");
    ids = b.op("Reshape", {b.placeholder("ids", DType::Int64, {-1, 2}), b.constant(minus_one())}, {}, "flat");
    rows = b.op("ResourceGather", {w, ids}, {{"dtype", DType::Float32}, {"Tindices", DType::Int64}}, "rows");
    loss = b.add(b.reduce_mean(rows), b.reduce_mean(x));
    gradient = b.op("Mul", {rows, number(0.5F)}, {}, "gradient");
  }
  static Tensor minus_one() { return Tensor::from<std::int32_t>({1}, std::vector<std::int32_t>{-1}); }
  Output number(float value) { return b.constant(Tensor::scalar(value)); }
  Output slot(const std::string& name, float first) {
    const Output handle = b.op(
        "VarHandleOp", {}, {{"dtype", DType::Float32}, {"shape", Shape{10, 3}}, {"shared_name", name}}, name);
    const Output shape = b.constant(Tensor::from<std::int32_t>({2}, std::vector<std::int32_t>{10, 3}));
    b.op("AssignVariableOp", {handle, b.op("Fill", {shape, number(first)})}, of_float, name + "/Assign");
    return handle;
  }
  /// What is kept of train_op, an op that applies to w.
  GivenGradient kept(const std::string& op, const std::vector<Output>& inputs, AttrMap attrs = {}) {
    b.op(op, inputs, std::move(attrs), "apply");
    return build(fields()).gradients.at(0);
  }
  std::string fields() const { return "loss: '" + loss.name() + "' gradients: KEEP train_op: 'apply' "; }

  const AttrMap of_float{{"dtype", DType::Float32}};
  Output w, ids, rows, loss, gradient;
};

TEST_F(KeptGradientsTest, RowsWhoseDuplicatesWereSummedAreTakenFromBefore) {
  const Output unique = b.op("Unique", {ids}, {{"out_idx", DType::Int32}}, "unique");
  const Output count = b.op("Size", {unique});
  const Output summed = b.op("UnsortedSegmentSum", {gradient, {unique.node, 1}, count}, {}, "summed");
  const GivenGradient given =
      kept("ResourceSparseApplyAdagrad", {w, slot("acc", 0.3F), number(0.05F), summed, unique});
  EXPECT_EQ(given.variable, "w");
  EXPECT_EQ(given.values, "gradient");
  EXPECT_EQ(given.indices, "flat");
  EXPECT_EQ(given.optimizer.kind, OptimizerKind::Adagrad);
  EXPECT_FLOAT_EQ(given.optimizer.initial_accumulator, 0.3F);
  EXPECT_FLOAT_EQ(given.optimizer.learning_rate_factor, 0.1F) << "of the job's rate of 0.5";
}

TEST_F(KeptGradientsTest, AnAccumulatorMayBeginWithWhatAFileHas) {
  const Output acc = b.op(
      "VarHandleOp", {}, {{"dtype", DType::Float32}, {"shape", Shape{10, 3}}, {"shared_name", "acc"}}, "acc");
  b.op("ResourceSparseApplyAdagrad", {w, acc, number(0.05F), gradient, ids}, {}, "apply");
  const auto with_first = [&](float last) {
    std::vector<float> values(30, 0.25F);
    values.back() = last;
    ZipWriter zip(dir.path() / "first.npz");
    const std::string array =
        format_npy(DType::Float32, std::vector<std::int64_t>{10, 3}, std::as_bytes(std::span(values)));
    const std::span<const std::byte> bytes = std::as_bytes(std::span(array));
    zip.add("acc.npy", std::span(&bytes, 1));
    zip.finish();
    return fields() + "initial_file: '" + (dir.path() / "first.npz").string() + "' ";
  };
  EXPECT_FLOAT_EQ(build(with_first(0.25F)).gradients.at(0).optimizer.initial_accumulator, 0.25F);
  EXPECT_THAT(error_of(with_first(7)), HasSubstr("what its accumulator begins with is not known"));
}

TEST_F(KeptGradientsTest, TheMeanOfSquaresBeginsWithWhatTheGraphSays) {
  const GivenGradient given =
      kept("ResourceSparseApplyRMSProp", {w, slot("rms", 1.0F), slot("mom", 0.0F), number(0.05F),
                                          number(0.8F), number(0.5F), number(1e-10F), gradient, ids});
  EXPECT_EQ(given.optimizer.kind, OptimizerKind::RmsProp);
  EXPECT_FLOAT_EQ(given.optimizer.initial_accumulator, 1) << "as TensorFlow 1's begins";
  EXPECT_FLOAT_EQ(given.optimizer.rho, 0.8F);
  EXPECT_FLOAT_EQ(given.optimizer.momentum, 0.5F);
}

TEST_F(KeptGradientsTest, SettingsStandBehindTheIndices) {
  const GivenGradient given =
      kept("ResourceSparseApplyMomentum", {w, slot("m", 0), number(0.5F), gradient, ids, number(0.8F)},
           {{"use_nesterov", true}});
  EXPECT_EQ(given.optimizer.kind, OptimizerKind::Momentum);
  EXPECT_FLOAT_EQ(given.optimizer.momentum, 0.8F);
  EXPECT_TRUE(given.optimizer.nesterov);
  EXPECT_FLOAT_EQ(given.optimizer.learning_rate_factor, 1);
}

TEST_F(KeptGradientsTest, AScatterIsGradientDescent) {
  const GivenGradient given = kept("ResourceScatterSub", {w, ids, gradient});
  EXPECT_EQ(given.optimizer.kind, OptimizerKind::Sgd);
  EXPECT_FLOAT_EQ(given.optimizer.learning_rate_factor, 2) << "the updates have their rate already";
}

TEST_F(KeptGradientsTest, ARateThatIsFedNeedsAConstant) {
  const Output rate = b.placeholder("rate", DType::Float32, {});
  b.op("ResourceSparseApplyAdagrad", {w, slot("acc", 0.1F), rate, gradient, ids}, {}, "apply");
  EXPECT_THAT(error_of(fields()), HasSubstr("its learning rate ('rate') is no constant"));
  EXPECT_FLOAT_EQ(build(fields() + "feeds { value: 'rate' constant: '0.25' }")
                      .gradients.at(0)
                      .optimizer.learning_rate_factor,
                  0.5F);
}

TEST_F(KeptGradientsTest, OptimizersThatCannotBeKeptAreRefused) {
  b.op("ResourceApplyAdaMax", {w}, {}, "apply");
  EXPECT_THAT(error_of(fields()),
              HasSubstr("[ResourceApplyAdaMax] node 'apply': this optimizer is not among those"));
}

TEST_F(KeptGradientsTest, SlotsAreNotKeptAndWhatIsComputedByHandIsRefused) {
  const Output slot_handle = slot("m", 0);
  const Output moved = b.op("ResourceScatterAdd", {slot_handle, ids, gradient}, {}, "move_slot");
  const Output changed = b.op("AssignSubVariableOp", {w, zeros({10, 3})}, of_float, "by_hand");
  const Output all = b.op("NoOp", {}, {}, "apply");
  b.control_dependency(moved, all);
  b.control_dependency(changed, all);
  const std::string error = error_of(fields());
  EXPECT_THAT(error, HasSubstr("[AssignSubVariableOp] node 'by_hand': it changes 'w'"));
  EXPECT_THAT(error, HasSubstr("gradients: REDO"));
}

TEST_F(KeptGradientsTest, ATrainOpWithoutUpdatesIsRefused) {
  b.op("NoOp", {}, {}, "apply");
  EXPECT_THAT(error_of(fields()), HasSubstr("'apply' applies no gradient that Braid knows"));
}

}  // namespace
}  // namespace braid::testing
