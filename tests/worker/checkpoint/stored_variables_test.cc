// Values of a checkpoint for the variables of a graph: what they were called before, and how many rows their
// tables had, does not matter.
#include "worker/checkpoint/stored_variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/checkpoint.h"
#include "engine/builder/graph_builder.h"
#include "engine/import/import.h"
#include "proto/graph.pb.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace braid::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class StoredVariablesTest : public ::testing::Test {
 protected:
  template <class T>
  void add(ShardWriter& writer, const std::string& name, std::vector<std::int64_t> shape,
           const std::vector<T>& values, DType dtype) {
    writer.add({name, dtype, std::move(shape), values.size() * sizeof(T)},
               std::as_bytes(std::span<const T>(values)));
  }

  /// What a job wrote when its tables were named after their positions: 4 rows, of which 2 are the column's.
  CheckpointInfo old_checkpoint() {
    CheckpointStore store(dir_.path());
    CheckpointMeta meta;
    meta.step = 3;
    meta.run = store.begin_run(RunStart::New);
    const auto temporary = store.begin(meta.step);
    ShardWriter writer(temporary / "worker-0.shard");
    add<float>(writer, "deep/c0/table", {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}, DType::Float32);
    add<std::int64_t>(writer, "wide/c0/table@keys", {1}, {1}, DType::Int64);
    add<float>(writer, "wide/c0/table@rows", {1, 1}, {9}, DType::Float32);
    return store.commit(temporary, meta, {writer.finish()});
  }

  std::vector<float> value(const CheckpointInfo& info, const Shape& shape, const std::string& name,
                           const std::string& former_name) {
    GraphBuilder b;
    b.read(b.variable(name, shape, {.former_name = former_name}));
    const Graph graph = import_graph(b.graph());
    const Tensor tensor = StoredVariables(info).value(graph, list_variables(graph)[0]);
    return {tensor.data<float>().begin(), tensor.data<float>().end()};
  }

  TempDir dir_;
};

TEST_F(StoredVariablesTest, AVariableIsFoundByItsFormerName) {
  const CheckpointInfo info = old_checkpoint();
  EXPECT_THAT(value(info, {2, 2}, "deep/age/table", "deep/c0/table"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(value(info, {2, 1}, "wide/age/table", "wide/c0/table"), ElementsAre(0, 9));
  EXPECT_THAT(value(info, {4, 2}, "deep/c0/table", ""), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
}

TEST_F(StoredVariablesTest, WhatIsNotThereOrDoesNotFitIsRefusedByName) {
  const CheckpointInfo info = old_checkpoint();
  EXPECT_ERROR(value(info, {2, 2}, "deep/age/table", "deep/c7/table"), InvalidArgument,
               HasSubstr("the checkpoint of step 3 has no 'deep/age/table'"));
  EXPECT_ERROR(value(info, {5, 2}, "deep/age/table", "deep/c0/table"), InvalidArgument,
               HasSubstr("'deep/c0/table' is float32[4, 2], the model has float32[5, 2]"));
  EXPECT_ERROR(value(info, {2, 2}, "deep/c0/table", ""), InvalidArgument,
               HasSubstr("'deep/c0/table' is float32[4, 2]"));
}

}  // namespace
}  // namespace braid::worker
