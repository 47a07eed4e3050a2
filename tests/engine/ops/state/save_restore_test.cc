// SaveV2, RestoreV2 and MergeV2Checkpoints on real files.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/engine/ops/op_runner.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"

namespace braid::testing {
namespace {

using Strings = std::vector<std::string>;

class SaveRestoreTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (directory_.path() / name).string(); }

  static std::vector<Tensor> restore(const std::string& prefix, const Strings& names, const Strings& slices,
                                     std::vector<DType> dtypes) {
    return run_op("RestoreV2", {word(prefix), text(names), text(slices)}, {{"dtypes", std::move(dtypes)}});
  }
  static std::string refusal(const std::string& prefix, const Strings& names, const Strings& slices,
                             DType dtype) {
    return message_of<Error>([&] { restore(prefix, names, slices, {dtype}); });
  }

 private:
  TempDir directory_;
};

TEST_F(SaveRestoreTest, WhatWasSavedIsRestored) {
  const Tensor w = f32({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}), step = i64({}, {42});
  run_effect("SaveV2",
             {word(path("deep/model")), text({"dense/kernel", "global_step"}), text({"", ""}), w, step});
  const auto values =
      restore(path("deep/model"), {"global_step", "dense/kernel"}, {"", ""}, {DType::Int64, DType::Float32});
  EXPECT_EQ(to_doubles(values[0]), (std::vector<double>{42}));
  EXPECT_EQ(values[1].shape(), w.shape());
  EXPECT_EQ(to_doubles(values[1]), to_doubles(w));
  const auto rows = restore(path("deep/model"), {"dense/kernel"}, {"4 2 1,2:-"}, {DType::Float32});
  EXPECT_EQ(rows[0].shape(), (Shape{2, 2}));
  EXPECT_EQ(to_doubles(rows[0]), (std::vector<double>{3, 4, 5, 6}));
}

TEST_F(SaveRestoreTest, WhatIsNotInTheFileIsRefused) {
  run_effect("SaveV2", {word(path("model")), text({"w"}), text({""}), f32({2}, {1, 2})});
  EXPECT_EQ(refusal(path("model"), {"v"}, {""}, DType::Float32),
            "[RestoreV2] node 'op': checkpoint '" + path("model") + "' has no tensor 'v'");
  EXPECT_EQ(refusal(path("model"), {"w"}, {""}, DType::Int32),
            "[RestoreV2] node 'op': 'w' in checkpoint '" + path("model") + "' is float32, not int32");
  EXPECT_EQ(refusal(path("model"), {"w"}, {"3 0,1"}, DType::Float32),
            "[RestoreV2] node 'op': 'w' has shape [2], not [3]");
  EXPECT_EQ(refusal(path("model"), {"w"}, {"2 1,2"}, DType::Float32),
            "[RestoreV2] node 'op': '2 1,2' does not say a slice");
}

TEST_F(SaveRestoreTest, SeveralCheckpointsBecomeOne) {
  run_effect("SaveV2", {word(path("part1")), text({"a"}), text({""}), f32({1}, {1})});
  run_effect("SaveV2", {word(path("part2")), text({"b"}), text({""}), f32({1}, {2})});
  run_effect("MergeV2Checkpoints", {text({path("part1"), path("part2")}), word(path("whole"))});
  const auto values = restore(path("whole"), {"a", "b"}, {"", ""}, {DType::Float32, DType::Float32});
  EXPECT_EQ(to_doubles(values[1]), (std::vector<double>{2}));
  EXPECT_FALSE(std::filesystem::exists(path("part1.index")));
}

TEST_F(SaveRestoreTest, ACheckpointThatIsNotThereYetHasUnknownShapes) {
  Graph graph;
  Node node;
  node.name = "op";
  node.op = &OpRegistry::global().require("RestoreV2");
  node.attrs = {{"dtypes", std::vector<DType>{DType::Float32}}};
  node.inputs = {add_known(graph, "prefix", word(path("later"))), add_known(graph, "names", text({"w"})),
                 add_known(graph, "slices", text({""}))};
  const NodeId id = graph.add(std::move(node));
  EXPECT_FALSE(graph.info({id, 0}).shape.has_rank());
}

}  // namespace
}  // namespace braid::testing
