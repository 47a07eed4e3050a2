// What variables begin with: rules that are recognised, values that are computed, checkpoints.
#include "worker/model/initial_values.h"

#include <gmock/gmock.h>

#include "base/files.h"
#include "base/formats/npy.h"
#include "base/formats/proto_wire.h"
#include "base/formats/tensor_bundle.h"
#include "base/formats/zip.h"
#include "proto/graph.pb.h"
#include "tests/worker/model/graph_model.h"

namespace braid::testing {
namespace {

using ::testing::HasSubstr;

class InitialValuesTest : public GraphModelTest {
 protected:
  /// The loss of a variable "w" [2, 3] that begins with `first`.
  std::string model_with(const Output& first) {
    const Output w = variable("w", {2, 3}, first);
    return "loss: '" + b.reduce_mean(b.op("Square", {w})).name() + "' ";
  }
  Output shape() { return b.constant(Tensor::from<std::int32_t>({2}, std::vector<std::int32_t>{2, 3})); }
  Output number(float value) { return b.constant(Tensor::scalar(value)); }
  InitSpec rule_of(const ModelGraph& model) {
    const AttrMap attrs = handle_of(graph_of(model), "w").attrs;
    return {static_cast<InitKind>(attrs.get<std::int64_t>("_init_kind", -1)),
            static_cast<float>(attrs.get("_init_a", 0.0)), static_cast<float>(attrs.get("_init_b", 0.0))};
  }
  void expect_rule(const Output& first, InitKind kind, float a, float c) {
    const InitSpec rule = rule_of(build(model_with(first)));
    EXPECT_EQ(rule.kind, kind);
    EXPECT_FLOAT_EQ(rule.a, a);
    EXPECT_FLOAT_EQ(rule.b, c);
  }
};

TEST_F(InitialValuesTest, ConstantsAreRecognised) {
  expect_rule(b.op("Fill", {shape(), number(0.1F)}), InitKind::Constant, 0.1F, 0);
}

TEST_F(InitialValuesTest, UniformNumbersAreRecognised) {
  // As random_uniform writes it: uniform * (high - low) + low.
  const Output range = b.op("Sub", {number(0.5F), number(-0.25F)});
  const Output drawn = b.op("RandomUniform", {shape()}, {{"dtype", DType::Float32}});
  expect_rule(b.op("AddV2", {b.mul(drawn, range), number(-0.25F)}), InitKind::Uniform, -0.25F, 0.5F);
}

TEST_F(InitialValuesTest, TruncatedNormalNumbersAreRecognised) {
  const Output seed = b.constant(Tensor::from<std::int64_t>({2}, std::vector<std::int64_t>{1, 2}));
  const Output drawn = b.op("StatelessTruncatedNormal", {shape(), seed});
  expect_rule(b.op("Identity", {b.op("Add", {b.mul(drawn, number(0.2F)), number(1)})}),
              InitKind::TruncatedNormal, 1, 0.2F);
}

TEST_F(InitialValuesTest, OthersAreComputed) {
  const Output numbers = b.op("Range", {number(0), number(6), number(1)}, {{"Tidx", DType::Float32}});
  const ModelGraph model = build(model_with(b.op("Reshape", {numbers, shape()})));
  ASSERT_TRUE(model.initial.contains("w"));
  EXPECT_EQ(model.initial.at("w").data<float>()[5], 5);
}

TEST_F(InitialValuesTest, AVariableWithoutOneIsRefused) {
  const Output handle =
      b.op("VarHandleOp", {}, {{"dtype", DType::Float32}, {"shape", Shape{3}}, {"shared_name", "v"}});
  const Output value = b.op("ReadVariableOp", {handle}, {{"dtype", DType::Float32}});
  EXPECT_THAT(error_of("loss: '" + b.reduce_mean(value).name() + "'"),
              HasSubstr("variable 'v' has no initial value: initial_file"));
}

TEST_F(InitialValuesTest, CheckpointsOfTensorFlowGiveValues) {
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  TensorBundleWriter writer(dir.path() / "ckpt");
  writer.add("w", DType::Float32, std::vector<std::int64_t>{2, 3}, std::as_bytes(std::span(values)));
  writer.finish();
  const std::string fields =
      model_with(zeros({2, 3})) + "initial_file: '" + (dir.path() / "ckpt").string() + "' ";
  EXPECT_EQ(build(fields).initial.at("w").data<float>()[4], 5);
  EXPECT_EQ(rule_of(build(fields + "initial: GRAPH")).kind, InitKind::Zeros);
}

std::string bytes_field(int field, std::string_view bytes) {
  std::string out;
  put_bytes_field(out, field, bytes);
  return out;
}

TEST_F(InitialValuesTest, ASavedModelBringsItsValues) {
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const auto folder = dir.path() / "saved";
  make_directories(folder / "variables");
  TensorBundleWriter writer(folder / "variables" / "variables");
  // By the name of an object, which its saver alone knows to be w.
  writer.add("layer/kernel/.ATTRIBUTES/VARIABLE_VALUE", DType::Float32, std::vector<std::int64_t>{2, 3},
             std::as_bytes(std::span(values)));
  writer.finish();
  const Output w =
      b.op("VarHandleOp", {}, {{"dtype", DType::Float32}, {"shape", Shape{2, 3}}, {"shared_name", "w"}}, "w");
  const Output read = b.op("ReadVariableOp", {w}, {{"dtype", DType::Float32}});
  const Output loss = b.reduce_mean(b.op("Square", {read}));
  const std::vector<std::string> key{"layer/kernel/.ATTRIBUTES/VARIABLE_VALUE"}, whole{""};
  const Output restored =
      b.op("RestoreV2",
           {b.placeholder("saver_filename", DType::String, {}), b.constant(Tensor::strings({1}, key)),
            b.constant(Tensor::strings({1}, whole))},
           {{"dtypes", std::vector<DType>{DType::Float32}}});
  const Output assign = b.op("AssignVariableOp", {w, restored}, {{"dtype", DType::Float32}}, "assign");
  const Output all = b.op("NoOp", {}, {}, "restore_all");
  b.control_dependency(assign, all);
  const std::string meta = bytes_field(2, b.graph().SerializeAsString()) +
                           bytes_field(3, bytes_field(1, "saver_filename:0") + bytes_field(3, "restore_all"));
  std::string model;
  put_varint_field(model, 1, 1);
  write_file_atomically(folder / "saved_model.pb", model + bytes_field(2, meta));

  const auto saved = worker::saved_variables(folder.string());
  ASSERT_TRUE(saved.contains("w"));
  EXPECT_EQ(saved.at("w").data<float>()[5], 6);
  proto::Job job = this->job("loss: '" + loss.name() + "'");
  job.mutable_model()->mutable_graph()->set_file(folder.string());
  EXPECT_EQ(worker::build_graph_model(job, columns).initial.at("w").data<float>()[4], 5);
  EXPECT_TRUE(worker::saved_variables((dir.path() / "graph.pbtxt").string()).empty());
}

TEST_F(InitialValuesTest, ArraysOfNumPyGiveValuesOfTheirShape) {
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const auto write = [&](const std::vector<std::int64_t>& dims) {
    ZipWriter zip(dir.path() / "first.npz");
    const std::string array = format_npy(DType::Float32, dims, std::as_bytes(std::span(values)));
    const std::span<const std::byte> bytes = std::as_bytes(std::span(array));
    zip.add("w.npy", std::span(&bytes, 1));
    zip.finish();
  };
  const std::string fields =
      model_with(zeros({2, 3})) + "initial_file: '" + (dir.path() / "first.npz").string() + "' ";
  write({2, 3});
  EXPECT_EQ(build(fields).initial.at("w").data<float>()[5], 6);
  write({3, 2});
  EXPECT_THAT(error_of(fields), HasSubstr("variable 'w' is float32 [2, 3], and float32 [3, 2] in '"));
}

class PartitionedTest : public InitialValuesTest {
 protected:
  /// The squares of "w" in parts of 2 and 1 rows, whose saver writes a checkpoint of the whole.
  std::string model_of_parts() {
    const Output loss = b.add(b.reduce_mean(b.op("Square", {variable("w/part_0", {2, 2}, zeros({2, 2}))})),
                              b.reduce_mean(b.op("Square", {variable("w/part_1", {1, 2}, zeros({1, 2}))})));
    return "loss: '" + loss.name() + "' initial_file: '" + (dir.path() / "ckpt").string() + "' ";
  }
  void write(const std::string& name, const std::vector<std::int64_t>& dims) {
    const std::vector<float> values{1, 2, 3, 4, 5, 6};
    TensorBundleWriter writer(dir.path() / "ckpt");
    std::size_t count = 1;
    for (const std::int64_t dim : dims) count *= static_cast<std::size_t>(dim);
    writer.add(name, DType::Float32, dims, std::as_bytes(std::span(values).first(count)));
    writer.finish();
  }
};

TEST_F(PartitionedTest, PartsAreCutOutOfTheWhole) {
  write("w", {3, 2});
  const ModelGraph model = build(model_of_parts());
  EXPECT_THAT(model.initial.at("w/part_0").data<float>(), ::testing::ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(model.initial.at("w/part_1").data<float>(), ::testing::ElementsAre(5, 6));
}

TEST_F(PartitionedTest, PartsOfOtherColumnsAreCutByColumns) {
  const Output loss = b.add(b.reduce_mean(b.op("Square", {variable("w/part_0", {2, 1}, zeros({2, 1}))})),
                            b.reduce_mean(b.op("Square", {variable("w/part_1", {2, 2}, zeros({2, 2}))})));
  write("w", {2, 3});
  const ModelGraph model =
      build("loss: '" + loss.name() + "' initial_file: '" + (dir.path() / "ckpt").string() + "' ");
  EXPECT_THAT(model.initial.at("w/part_0").data<float>(), ::testing::ElementsAre(1, 4));
  EXPECT_THAT(model.initial.at("w/part_1").data<float>(), ::testing::ElementsAre(2, 3, 5, 6));
}

TEST_F(PartitionedTest, AFileWithNoneOfTheVariablesIsRefused) {
  write("w", {2, 3});  // the parts do not make it up
  EXPECT_THAT(error_of(model_of_parts()),
              HasSubstr("has a value for none of the variables 'w/part_0', 'w/part_1': it has 'w'"));
}

TEST_F(PartitionedTest, AFileWithSomeOfTheVariablesIsSaid) {
  write("w/part_1", {1, 2});
  ::testing::internal::CaptureStderr();
  const ModelGraph model = build(model_of_parts());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("has no value for 1 of 2 variables, which begin as the graph says: 'w/part_0'"));
}

}  // namespace
}  // namespace braid::testing
