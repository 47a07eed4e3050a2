// Columns that travel as bytes, or as ids of 32 bits, beside those that the batcher makes wider.
#include "worker/input/stored_columns.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/optim.h"
#include "engine/builder/graph_builder.h"
#include "engine/compile/compile.h"
#include "engine/exec/instance.h"
#include "engine/import/import.h"
#include "engine/ops/state/variable_init.h"
#include "engine/program/program.h"
#include "proto/graph.pb.h"
#include "worker/step/training_graph.h"

namespace braid::worker {
namespace {

constexpr std::int64_t kRows = 32, kWidth = 5, kBatch = 4;

std::shared_ptr<Table> bytes_and_floats() {
  auto table = std::make_shared<Table>();
  table->rows = kRows;
  Tensor bytes(DType::UInt8, {kRows, kWidth}), floats(DType::Float32, {kRows, kWidth});
  for (std::size_t i = 0; i < kRows * kWidth; ++i) {
    bytes.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(i * 37);
    floats.data<float>()[i] = static_cast<float>(i % 7) - 3;
  }
  table->columns.push_back({"image", bytes, 1.0F / 255});
  table->columns.push_back({"other", floats});
  return table;
}

struct Fed {
  std::vector<float> y;
  std::size_t batch_bytes = 0;
};

Fed run(bool as_stored) {
  GraphBuilder b;
  const Output image = b.placeholder("image", DType::Float32, {-1, kWidth}),
               other = b.placeholder("other", DType::Float32, {-1, kWidth});
  b.op("Mul", {b.op("AddV2", {image, image}), b.op("AddV2", {other, image})}, {}, "y");
  Graph graph = import_graph(b.graph());
  const std::vector<std::string> columns{"image", "other"};
  Batcher batcher(bytes_and_floats(), columns,
                  {.global_batch = kBatch, .shuffle = false, .as_stored = as_stored});
  cast_stored_columns(graph, columns, batcher);
  CompileRequest request;
  for (std::size_t c = 0; c < columns.size(); ++c)
    request.feeds.push_back({columns[c], batcher.dtype(c), batcher.shape(c, kBatch)});
  request.fetches = {"y"};
  Runtime runtime({});
  Instance instance(compile(graph, request, {}), runtime, {});
  const Batch batch = batcher.make(1);
  StepRequest step;
  step.feeds = batch.tensors;
  const StepResult result =
      instance.run(std::move(step), WaitContext::with_timeout(std::chrono::seconds(60)));
  const auto y = result.fetches[0].data<float>();
  return {{y.begin(), y.end()}, batch.tensors[0].bytes()};
}

TEST(StoredColumnsTest, ThatTheStepCastsHaveTheBitsOfThoseTheBatcherCasts) {
  const Fed cast = run(false), stored = run(true);
  ASSERT_EQ(stored.y.size(), std::size_t{kBatch * kWidth});
  EXPECT_EQ(std::memcmp(stored.y.data(), cast.y.data(), stored.y.size() * sizeof(float)), 0);
  EXPECT_EQ(stored.batch_bytes * sizeof(float), cast.batch_bytes);
  EXPECT_NE(stored.y.front(), stored.y.back());
}

/// Ids below 50 in two fields side by side, and bags of them.
std::shared_ptr<Table> ids_and_bags(std::int64_t below) {
  auto table = std::make_shared<Table>();
  table->rows = kRows;
  Tensor ids(DType::Int64, {kRows, 3});
  for (std::size_t i = 0; i < kRows * 3; ++i)
    ids.data<std::int64_t>()[i] = static_cast<std::int64_t>(i * 17 % 50);
  table->columns.push_back({"sparse", ids, 1.0F, {{"a", 1, 50}, {"b", 1, below}, {"c", 1, 50}}});
  std::vector<std::int64_t> values, offsets{0};
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t i = 0; i < r % 4; ++i) values.push_back((r * 7 + i * 13) % 50);
    offsets.push_back(std::ssize(values));
  }
  TableColumn tags{
      "sparse/tags", Tensor::from<std::int64_t>({std::ssize(values)}, values), 1.0F, {{"tags", 0, 50}}};
  tags.offsets = Tensor::from<std::int64_t>({kRows + 1}, offsets);
  table->columns.push_back(std::move(tags));
  return table;
}

const std::vector<std::string> kIdColumns{"sparse", "sparse/tags", "sparse/tags/offsets"};

/// A table that is updated by rows, one with a dense gradient, ids that are compared, bags, and rows by a
/// column itself.
TrainingGraph training_on_ids() {
  GraphBuilder b;
  const Output sparse = b.placeholder("sparse", DType::Int64, {-1, 3}),
               tags = b.placeholder("sparse/tags", DType::Int64, {-1}),
               offsets = b.placeholder("sparse/tags/offsets", DType::Int32, {-1});
  const auto table = [&](const char* name, bool by_rows) {
    return b.variable(name, {50, 4}, {.init = {InitKind::Uniform, -0.5F, 0.5F}, .sparse = by_rows});
  };
  const Output columns = b.op("Unpack", {sparse}, {{"num", 3}, {"axis", 1}}, "columns");
  const auto column = [&](int c) { return Output{columns.node, c}; };
  const Output zero = b.constant(Tensor::scalar<std::int64_t>(0), "zero");
  const Output present = b.op("Cast", {b.op("NotEqual", {column(2), zero}, {}, "compared")},
                              {{"SrcT", DType::Bool}, {"DstT", DType::Float32}});
  const Output rows =
      b.add(b.gather(table("by_rows", true), column(0)), b.gather(table("whole", false), column(1)));
  const Output sums = b.op(
      "braid.Bag", {table("bags", true), tags, offsets},
      {{"dtype", DType::Float32}, {"pooling", std::string("mean")}, {"ragged", true}, {"weighted", false}},
      "bag");
  const Output whole_column = b.reduce_mean(b.gather(table("of_column", true), tags));
  const Output weighed = b.op("Mul", {b.add(b.add(rows, sums), whole_column), b.reshape(present, {-1, 1})});
  return make_training_graph(b.graph(), b.reduce_mean(b.op("Square", {weighed})).name());
}

struct Steps {
  std::vector<float> losses;
  std::size_t batch_bytes = 0;
  DType fed = DType::Invalid, compared = DType::Invalid, looked_up = DType::Invalid;
  int widened = 0;  // Casts of ids
};

Steps train_on_ids(bool as_stored, std::int64_t below, NarrowIds taken = NarrowIds::ByNodes) {
  TrainingGraph training = training_on_ids();
  Graph& graph = training.graph;
  Batcher batcher(ids_and_bags(below), kIdColumns,
                  {.global_batch = kBatch, .seed = 2, .as_stored = as_stored});
  narrow_id_columns(training, kIdColumns, batcher, taken);
  for (const VariableGradient& gradient : training.gradients) add_update(training, gradient, {});
  Steps steps;
  steps.fed = batcher.dtype(0);
  steps.compared = graph.info(graph.node(graph.find("compared")).inputs[0]).dtype;
  steps.looked_up = graph.info(graph.node(graph.find("bag")).inputs[1]).dtype;
  CompileRequest request;
  for (std::size_t c = 0; c < kIdColumns.size(); ++c)
    request.feeds.push_back({kIdColumns[c], batcher.dtype(c), batcher.shape(c, kBatch)});
  request.fetches = {graph.value_name(training.loss)};
  request.targets = training.targets;
  for (NodeId id = 0; id < graph.size(); ++id)
    steps.widened += !graph.node(id).removed && graph.node(id).name.ends_with("/wide") ? 1 : 0;
  Runtime runtime({});
  Instance instance(compile(graph, request, {}), runtime, {});
  for (const VariableInfo& variable : list_variables(graph)) {
    Tensor value(variable.dtype, variable.shape);
    initialize_variable(graph.node(variable.handle), 1, value);
    runtime.variables().write(variable.name, value);
  }
  for (std::uint64_t t = 0; t < 20; ++t) {
    Batch batch = batcher.make(t);
    steps.batch_bytes = batch.tensors[0].bytes() + batch.tensors[1].bytes();
    StepRequest step;
    step.params.step = t;
    step.params.learning_rate = 0.5F;
    step.feeds = std::move(batch.tensors);
    const StepResult result =
        instance.run(std::move(step), WaitContext::with_timeout(std::chrono::seconds(60)));
    steps.losses.push_back(result.fetches[0].data<float>()[0]);
  }
  return steps;
}

TEST(StoredColumnsTest, NarrowIdsTrainToTheSameBits) {
  const Steps wide = train_on_ids(false, 50), narrow = train_on_ids(true, 50);
  EXPECT_EQ(wide.fed, DType::Int64);
  EXPECT_EQ(narrow.fed, DType::Int32);
  EXPECT_EQ(narrow.batch_bytes * 2, wide.batch_bytes);
  EXPECT_EQ(narrow.looked_up, DType::Int32);
  EXPECT_EQ(narrow.compared, DType::Int64) << "what computes with ids has them as the model wrote it";
  EXPECT_EQ(narrow.widened, 1) << "the compared one alone";
  EXPECT_EQ(wide.widened, 0);
  EXPECT_EQ(narrow.losses, wide.losses);
  EXPECT_LT(narrow.losses.back(), narrow.losses.front());
  const Steps cast = train_on_ids(true, 50, NarrowIds::Cast);
  EXPECT_EQ(cast.fed, DType::Int32);
  EXPECT_EQ(cast.looked_up, DType::Int64);
  EXPECT_EQ(cast.widened, 2) << "one a column";
  EXPECT_EQ(cast.losses, wide.losses);
}

TEST(StoredColumnsTest, IdsThatMayNotFitTravelAsTheyAre) {
  for (const std::int64_t below : {std::int64_t{0}, (std::int64_t{1} << 31) + 1}) {
    const Steps as_they_are = train_on_ids(true, below);
    EXPECT_EQ(as_they_are.fed, DType::Int64) << below;
    EXPECT_EQ(as_they_are.looked_up, DType::Int32) << "a column has its own width";
    EXPECT_EQ(as_they_are.losses, train_on_ids(false, below).losses);
  }
  EXPECT_EQ(train_on_ids(true, std::int64_t{1} << 31).fed, DType::Int32);
}

}  // namespace
}  // namespace braid::worker
