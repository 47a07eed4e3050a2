// The model of MLPerf's HSTU: its variables against the benchmark's, what a row's logit depends on, and what
// is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/import/import.h"
#include "engine/ops/state/variable_init.h"
#include "models/model.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/interpreter.h"
#include "tests/support/expect_error.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

IdField field(const char* name, std::int64_t ids, const char* table = "", const char* ragged_input = "") {
  IdField of{.name = name, .ids = ids, .filled = false, .input = ragged_input};
  of.table.shared = table;
  return of;
}

ModelConfig benchmark() {
  ModelConfig config;
  config.columns = {{"candidate", Shape{3}}, {"sparse", Shape{8}}, {"dense", Shape{4}}, {"label", Shape{}}};
  config.fields["history"] = {field("history_item", 9390624, "items", "history/history_item"),
                              field("history_artist", 1293395, "artists", "history/history_artist"),
                              field("history_album", 3367692, "albums", "history/history_album")};
  config.fields["candidate"] = {field("item", 9390624, "items"), field("artist", 1293395, "artists"),
                                field("album", 3367692, "albums")};
  config.fields["action"] = {field("history_action", 8, "", "action/history_action")};
  config.fields["action"][0].weighted = true;
  for (const std::int64_t rows :
       {1000001, 100000000, 40000000, 24000000, 40000000, 32000000, 2000000, 40000000})
    config.fields["sparse"].push_back(
        field(("c" + std::to_string(config.fields["sparse"].size())).c_str(), rows));
  return config;
}

TEST(HstuTest, HasTheBenchmarksVariables) {
  const ModelGraph made = build_model("hstu", benchmark());
  const Graph graph = import_graph(*made.graph);
  std::int64_t dense = 0, rows = 0;
  for (const VariableInfo& variable : list_variables(graph)) {
    if (!variable.name.ends_with("/table")) {
      dense += variable.shape.elements();
      continue;
    }
    EXPECT_EQ(variable.shape[1], 512) << variable.name;
    rows += variable.shape[0];
    const InitSpec init = variable_init_spec(graph.node(variable.handle));
    EXPECT_NEAR(init.b, 1 / std::sqrt(static_cast<double>(variable.shape[0])), 1e-6);
  }
  EXPECT_EQ(rows, 293051712);
  EXPECT_EQ(dense, 15243057);
}

/// As small as can be: one table.
ModelConfig small() {
  ModelConfig config;
  config.embedding_dim = 4;
  config.heads = 2;
  config.layers = 2;
  config.hidden = {3};
  config.columns = {{"candidate", Shape{1}}, {"label", Shape{}}};
  config.fields["history"] = {field("seen", 10, "items", "history/seen")};
  config.fields["candidate"] = {field("item", 10, "items")};
  return config;
}

/// Histories of 3, 0 and 1 items in a room of `room` ids, of which those behind the lists are `filler`.
std::vector<float> logits_of(const ModelConfig& config, std::int64_t room, std::int64_t filler,
                             const std::vector<std::int64_t>& candidates = {4, 5, 6}) {
  const ModelGraph made = build_model("hstu", config);
  const Graph graph = import_graph(*made.graph);
  braid::testing::Interpreter interpreter(graph);
  std::uint64_t at = 7;
  for (const VariableInfo& variable : list_variables(graph)) {
    Tensor value = Tensor::zeros(DType::Float32, variable.shape);
    for (float& each : value.data<float>()) each = std::sin(static_cast<float>(++at)) * 0.5F;
    interpreter.variables()[variable.name] = value;
  }
  std::vector<std::int64_t> ids{1, 2, 3, 9};
  ids.resize(static_cast<std::size_t>(room), filler);
  const std::vector<std::int32_t> offsets{0, 3, 3, 4};
  const auto logits = interpreter.run({{"history/seen", Tensor::from<std::int64_t>({room}, ids)},
                                       {"history/seen/offsets", Tensor::from<std::int32_t>({4}, offsets)},
                                       {"candidate", Tensor::from<std::int64_t>({3, 1}, candidates)}},
                                      {made.prediction});
  return {logits[0].data<float>().begin(), logits[0].data<float>().end()};
}

TEST(HstuTest, ARowsLogitDependsOnItsOwnHistoryAndCandidate) {
  const std::vector<float> logits = logits_of(small(), 4, 0);
  ASSERT_EQ(logits.size(), 3U);
  EXPECT_EQ(logits_of(small(), 9, 8), logits) << "neither the room nor what is in it counts";
  const std::vector<float> others = logits_of(small(), 4, 0, {4, 7, 6});
  EXPECT_EQ(others[0], logits[0]);
  EXPECT_NE(others[1], logits[1]);
  EXPECT_EQ(others[2], logits[2]);
}

TEST(HstuTest, TablesAreCutByIdsModuloTheirRows) {
  ModelConfig cut = small();
  cut.max_rows = 5;
  const Graph graph = import_graph(*build_model("hstu", cut).graph);
  for (const VariableInfo& variable : list_variables(graph))
    EXPECT_TRUE(variable.name != "items/table" || variable.shape == (Shape{5, 4}));
  EXPECT_EQ(logits_of(cut, 4, 0, {4, 5, 6}), logits_of(cut, 4, 0, {9, 0, 1}));
}

TEST(HstuTest, RefusesColumnsThatDoNotGoTogether) {
  const auto refused = [](const ModelConfig& config, const char* why) {
    EXPECT_ERROR(build_model("hstu", config), InvalidArgument, HasSubstr(why));
  };
  ModelConfig config = small();
  config.heads = 3;
  refused(config, "embedding_dim must be a multiple of 3 heads");
  config = small();
  config.fields["history"].push_back(field("other", 10, "others", "history/other"));
  refused(config, "the history has 2 columns, the candidate 1");
  config = small();
  config.fields["candidate"] = {field("item", 10)};
  refused(config, "columns 'seen' and 'item' look up the same items");
  config = small();
  config.fields["action"] = {field("did", 6, "", "action/did")};
  refused(config, "'did' of actions must have 2, 4, ... 256 ids");
}

}  // namespace
}  // namespace braid
