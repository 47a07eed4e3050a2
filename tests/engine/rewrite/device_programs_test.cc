// Programs for a device, compiled on a machine that has none: whatever the model, types and regions, each
// value that is read is made, and nothing of a step is left on the host.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/builder/graph_builder.h"
#include "engine/fusion/region.h"
#include "engine/import/import.h"
#include "engine/program/program.h"
#include "engine/rewrite/horizontal_fusion.h"
#include "proto/graph.pb.h"
#include "tests/engine/rewrite/mixed_models.h"
#include "tests/engine/testing/assumed_kernels.h"
#include "tests/engine/testing/random_graph.h"
#include "tests/engine/testing/test_ops.h"

namespace braid::testing {
namespace {

constexpr const char* kFunctions[] = {"Neg", "Abs", "Relu", "Square", "Tanh", "Sigmoid", "Exp"};

/// How many times the program computes such functions, by nodes and in regions.
std::int64_t functions_computed(const Program& program) {
  const auto count = [](const auto& all) {
    return std::ranges::count_if(
        all, [](const auto& one) { return std::ranges::find(kFunctions, one.op) != std::end(kFunctions); });
  };
  std::int64_t functions = count(program.ops);
  for (const ProgramOp& op : program.ops)
    if (op.op == "braid.Fused")
      functions += count(
          fusion::Region::parse(program.graph.node(op.node).attrs.require<std::string>("program")).steps);
  return functions;
}

class DeviceProgramsTest : public ::testing::Test {
 protected:
  void SetUp() override { assume_cuda_kernels(); }

  /// With and without regions, in float32 and in halves.
  void expect_compiles(const MixedModel& model) {
    for (const DType half : {DType::Float32, DType::BFloat16})
      for (const bool fusion : {false, true}) {
        SCOPED_TRACE(fmt::format("{}{}", dtype_name(half), fusion ? ", regions" : ""));
        std::shared_ptr<const Program> program;
        ASSERT_NO_THROW(
            program = compile(model.graph, model.request, precision_options(half, Domain::Device, fusion)));
        regions_ += count_ops(*program, "braid.Fused");
        repeated_ += (fusion ? 1 : -1) * functions_computed(*program);
        for (const ProgramOp& op : program->ops)
          EXPECT_EQ(op.domain, Domain::Device) << op.op << " '" << op.name << "'";
      }
  }

  int regions_ = 0;
  std::int64_t repeated_ = 0;  // functions that more than one region computes
};

constexpr const char* kZoo[] = {"cnn",  "dcn_v2", "deepfm", "din",      "dlrm",        "dlrm_v2",
                                "hstu", "mlp",    "mmoe",   "resnet18", "transformer", "wide_deep"};

TEST_F(DeviceProgramsTest, ModelsOfTheZoo) {
  for (const char* name : kZoo) {
    SCOPED_TRACE(name);
    expect_compiles(zoo_model(name));
  }
  EXPECT_GT(regions_, std::ssize(kZoo));
}

/// BRAID_RANDOM_MODELS says how many.
TEST_F(DeviceProgramsTest, RandomModels) {
  for (int seed = 0; seed < tries("BRAID_RANDOM_MODELS", 200, 20) && !HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    expect_compiles(random_model(static_cast<std::uint64_t>(seed)));
  }
}

/// Values of 64 MB that products, sums of rows and running sums keep apart, and cheap nodes between them that
/// more than one of these reads: regions compute such nodes again rather than read them, and then what others
/// of them read must be written, or be computed again, too.
MixedModel cheap_nodes_between_products(std::uint64_t seed) {
  constexpr std::int64_t kRows = 16384, kWidth = 1024;
  std::mt19937_64 random(seed);
  const auto pick = [&](std::size_t count) { return static_cast<std::size_t>(random() % count); };
  MixedModel made;
  GraphBuilder b;
  std::vector<Output> values;
  const auto feed = [&](const std::string& name, const Shape& shape) {
    made.request.feeds.push_back({name, DType::Float32, shape});
    return b.placeholder(name, DType::Float32, shape);
  };
  for (const char* name : {"x", "y"}) values.push_back(feed(name, {kRows, kWidth}));
  const Output weights = feed("w", {kWidth, kWidth});
  const Output first = b.constant(Tensor::scalar<std::int32_t>(0), "first");
  const Output last = b.constant(Tensor::scalar<std::int32_t>(1), "last");
  const auto some = [&] { return values[values.size() - 1 - pick(std::min<std::size_t>(values.size(), 8))]; };
  for (std::size_t left = 20 + pick(60); left > 0; --left) {
    constexpr const char* kBinary[] = {"AddV2", "Sub", "Mul", "Maximum"};
    switch (pick(10)) {
      case 0:
        values.push_back(b.op("MatMul", {some(), weights}));
        break;
      case 1:
        values.push_back(b.op("Cumsum", {some(), first}));
        break;
      case 2: {
        const Output x = some();
        values.push_back(b.op("Sub", {x, b.op("Mean", {x, last}, {{"keep_dims", true}})}));
        break;
      }
      case 3:
      case 4:
        values.push_back(b.op(kFunctions[pick(std::size(kFunctions))], {some()}));
        break;
      default:
        values.push_back(b.op(kBinary[pick(std::size(kBinary))], {some(), some()}));
    }
  }
  for (std::size_t back = 1; back <= 3; ++back)
    made.request.fetches.push_back(values[values.size() - back].name());
  made.graph = import_graph(b.graph());
  return made;
}

TEST_F(DeviceProgramsTest, LargeValuesWithCheapNodesBetweenThem) {
  for (int seed = 0; seed < tries("BRAID_RANDOM_MODELS", 500, 50) && !HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    expect_compiles(cheap_nodes_between_products(static_cast<std::uint64_t>(seed)));
  }
  EXPECT_GT(repeated_, 0);
}

/// Products of one value by two constants, which are summed: as siblings, or by the region of what makes the
/// value.
TEST_F(DeviceProgramsTest, SiblingsThatARegionTakesInStayApart) {
  for (const bool fusion : {false, true}) {
    GraphBuilder b;
    CompileRequest request;
    request.feeds = {{"x", DType::Float32, {1024, 64}}};
    const Output made = b.op("Tanh", {b.placeholder("x", DType::Float32, {1024, 64})});
    const Output rows = b.constant(Tensor::from<std::int32_t>({1}, std::vector{0}));
    for (const std::uint64_t seed : {1, 2}) {
      const Output product = b.mul(made, b.constant(random_floats({1024, 64}, seed)));
      request.fetches.push_back(b.op("Sum", {product, rows}).name());
    }
    CompileOptions options = precision_options(DType::Float32, Domain::Device, fusion);
    options.batch_siblings = BatchSiblings::WithinScopes;
    const auto program = compile(import_graph(b.graph()), request, options);
    const auto batched = std::ranges::count_if(
        program->ops, [&](const ProgramOp& op) { return !lanes_text(program->graph.node(op.node)).empty(); });
    EXPECT_EQ(batched > 0, !fusion);
    EXPECT_EQ(count_ops(*program, "braid.Fused"), fusion ? 1 : 0);
  }
}

}  // namespace
}  // namespace braid::testing
