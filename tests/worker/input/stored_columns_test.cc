// Columns that travel as bytes and are cast by the step, beside those that the batcher casts.
#include "worker/input/stored_columns.h"

#include <gtest/gtest.h>

#include <cstring>

#include "engine/builder/graph_builder.h"
#include "engine/compile/compile.h"
#include "engine/exec/instance.h"
#include "engine/import/import.h"
#include "engine/program/program.h"
#include "proto/graph.pb.h"

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

}  // namespace
}  // namespace braid::worker
