// How the variables of the models begin, which their papers or reference implementations decide.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/init.h"
#include "engine/import/import.h"
#include "engine/input/formats/mlperf_dlrm.h"
#include "engine/ops/state/variable_init.h"
#include "models/model.h"
#include "proto/graph.pb.h"

namespace braid {
namespace {

constexpr std::int64_t kDim = 4, kRows = 50;

ModelConfig config() {
  ModelConfig config;
  config.embedding_dim = kDim;
  config.hash_buckets = kRows;
  config.columns = {{"dense", Shape{3}}, {"sparse", Shape{2}},  {"label", Shape{}},
                    {"click", Shape{}},  {"purchase", Shape{}}, {"history", Shape{5}},
                    {"item", Shape{1}},  {"tokens", Shape{6}},  {"image", Shape{8, 8, 1}},
                    {"x", Shape{1}},     {"y", Shape{1}},       {"z", Shape{1}}};
  return config;
}

/// Of models whose history is ragged.
ModelConfig of_sequences() {
  ModelConfig ragged = config();
  IdField seen{.name = "seen", .ids = kRows, .filled = false, .input = "history/seen"};
  IdField item{.name = "item", .ids = kRows};
  seen.table.shared = item.table.shared = "items";
  ragged.columns.erase("history");
  ragged.columns["candidate"] = Shape{1};
  ragged.fields = {{"history", {seen}}, {"candidate", {item}}};
  return ragged;
}

std::map<std::string, InitSpec> initial_values(const std::string& model, const ModelConfig& config) {
  const ModelGraph made = build_model(model, config);
  const Graph graph = import_graph(*made.graph);
  std::map<std::string, InitSpec> specs;
  for (const VariableInfo& variable : list_variables(graph))
    specs[variable.name] = variable_init_spec(graph.node(variable.handle));
  return specs;
}

void expect_uniform(const InitSpec& spec, double range) {
  EXPECT_EQ(spec.kind, InitKind::Uniform);
  EXPECT_NEAR(spec.b, range, 1e-6 * range);
  EXPECT_EQ(spec.a, -spec.b);
}
void expect_normal(const InitSpec& spec, double deviation, InitKind kind = InitKind::Normal) {
  EXPECT_EQ(spec.kind, kind);
  EXPECT_EQ(spec.a, 0);
  EXPECT_NEAR(spec.b, deviation, 1e-6 * deviation);
}

// Anything else than zeros is noise on the logits, which ids that come seldom keep.
TEST(InitialValuesTest, TheWidePartOfWideAndDeepBeginsAtZeros) {
  auto specs = initial_values("wide_deep", config());
  for (const char* name : {"wide/c0/table", "wide/c1/table", "wide/dense/kernel", "wide/dense/bias"}) {
    ASSERT_TRUE(specs.contains(name)) << name;
    EXPECT_EQ(specs.at(name).kind, InitKind::Zeros) << name;
  }
  expect_normal(specs.at("deep/c0/table"), 1 / std::sqrt(4.0), InitKind::TruncatedNormal);
}

TEST(InitialValuesTest, TablesBeginAsInTheReferenceImplementations) {
  expect_uniform(initial_values("dlrm", config()).at("table0/table"), 1 / std::sqrt(50.0));
  expect_uniform(initial_values("dcn_v2", config()).at("c0/table"), 1 / std::sqrt(50.0));
  expect_uniform(initial_values("dlrm_v2", config()).at("c0/table"), 1 / std::sqrt(50.0));
  expect_normal(initial_values("deepfm", config()).at("c0/table"), 1e-4);
  expect_normal(initial_values("mmoe", config()).at("c0/table"), 1e-4);
  expect_uniform(initial_values("din", config()).at("c0/table"), std::sqrt(6.0 / (50 + 4)));
  expect_normal(initial_values("transformer", config()).at("places"), 1 / std::sqrt(4.0));
}

TEST(InitialValuesTest, AQuerysTableBeginsByItsOwnRowsAlsoBehindWhoAsks) {
  ModelConfig asked = config();
  IdField seen{"seen", 3, 25}, item{"item", 1, 400};
  seen.table.pooling = ListPooling::Attention;
  seen.table.query = "item";
  asked.columns["sparse"] = Shape{4};
  asked.fields["sparse"] = {seen, item};
  for (const char* model : {"dcn_v2", "dlrm_v2"}) {
    auto specs = initial_values(model, asked);
    expect_uniform(specs.at("seen/table"), 1 / std::sqrt(25.0));
    expect_uniform(specs.at("item/table"), 1 / std::sqrt(400.0));
  }
}

TEST(InitialValuesTest, LayersBeginAsInTheReferenceImplementations) {
  auto dlrm = initial_values("dlrm", config());
  expect_normal(dlrm.at("bottom/layer0/kernel"), std::sqrt(2.0 / (3 + 64)));
  expect_normal(dlrm.at("bottom/layer0/bias"), std::sqrt(1.0 / 64));
  auto dcn = initial_values("dcn_v2", config());
  expect_normal(dcn.at("cross0/kernel"), std::sqrt(2.0 / (11 + 11)));
  EXPECT_EQ(dcn.at("cross0/bias").kind, InitKind::Zeros);
  expect_uniform(dcn.at("deep/layer0/bias"), 1 / std::sqrt(11.0));
  auto dlrm_v2 = initial_values("dlrm_v2", config());
  expect_uniform(dlrm_v2.at("bottom/layer0/kernel"), 1 / std::sqrt(3.0));
  expect_uniform(dlrm_v2.at("bottom/layer0/bias"), 1 / std::sqrt(3.0));
  expect_normal(dlrm_v2.at("cross0/v"), std::sqrt(2.0 / (3 * 4 + 512)));
  expect_normal(dlrm_v2.at("cross2/w"), std::sqrt(2.0 / (512 + 3 * 4)));
  EXPECT_EQ(dlrm_v2.at("cross0/bias").kind, InitKind::Zeros);
  expect_uniform(dlrm_v2.at("top/layer0/kernel"), 1 / std::sqrt(12.0));
  expect_normal(initial_values("resnet18", config()).at("stem/conv/kernel"), std::sqrt(2.0 / 9));
  expect_uniform(initial_values("mlp", config()).at("mlp/layer0/kernel"), std::sqrt(6.0 / (64 + 256)));
}

TEST(InitialValuesTest, AJobsRangeIsThatOfItsEmbeddingTablesAlone) {
  ModelConfig ranged = config();
  ranged.embedding_init = 0.25;
  auto specs = initial_values("wide_deep", ranged);
  expect_uniform(specs.at("deep/c1/table"), 0.25);
  EXPECT_EQ(specs.at("wide/c1/table").kind, InitKind::Zeros) << "weights are no embeddings";
  for (const auto& [model, table] : {std::pair{"dlrm", "table0/table"},
                                     {"dcn_v2", "c0/table"},
                                     {"deepfm", "c0/table"},
                                     {"dlrm_v2", "c0/table"},
                                     {"mmoe", "c0/table"},
                                     {"din", "items/table"},
                                     {"transformer", "tokens_table/table"}})
    expect_uniform(initial_values(model, ranged).at(table), 0.25);
}

TEST(InitialValuesTest, HstuBeginsAsItsReference) {
  auto specs = initial_values("hstu", of_sequences());
  expect_uniform(specs.at("items/table"), 1 / std::sqrt(50.0));
  expect_uniform(specs.at("position/places"), 1 / std::sqrt(8192.0));
  expect_normal(specs.at("first/inner/kernel"), std::sqrt(2.0 / (4 + 256)));
  expect_uniform(specs.at("layer0/uvqk/kernel"), std::sqrt(6.0 / (4 + 16)));
  expect_uniform(specs.at("layer2/output/kernel"), std::sqrt(6.0 / (12 + 4)));
  expect_uniform(specs.at("item/outer/kernel"), std::sqrt(6.0 / (4 + 4)));
  EXPECT_EQ(specs.at("layer0/uvqk/bias").kind, InitKind::Zeros);
}

TEST(InitialValuesTest, DlrmV2HasTheBenchmarksVariables) {
  ModelConfig benchmark;
  benchmark.columns = {{"dense", Shape{13}}, {"sparse", Shape{214}}, {"label", Shape{}}};
  benchmark.types["sparse"] = DType::Int32;
  for (std::size_t c = 0; c < kMlperfRows.size(); ++c)
    benchmark.fields["sparse"].push_back(
        {.name = "c" + std::to_string(c), .length = kMlperfHots[c], .ids = kMlperfRows[c], .filled = false});
  const Graph graph = import_graph(*build_model("dlrm_v2", benchmark).graph);
  std::int64_t dense = 0, rows = 0;
  for (const VariableInfo& variable : list_variables(graph)) {
    if (!variable.name.ends_with("/table")) {
      dense += variable.shape.elements();
      continue;
    }
    EXPECT_EQ(variable.shape[1], 128) << variable.name;
    rows += variable.shape[0];
  }
  EXPECT_EQ(dense, 16044545);
  EXPECT_EQ(rows, 204184588);
}

// The policies and the batching of siblings are free in what can be trained.
TEST(InitialValuesTest, NoModelOfTheZooPutsNodesOnStreams) {
  for (const std::string& model : model_names()) {
    const ModelGraph made = build_model(model, model == "hstu" ? of_sequences() : config());
    for (const NodeDef& node : made.graph->node())
      EXPECT_FALSE(node.attr().contains("_stream_id")) << model << ": " << node.name();
  }
}

}  // namespace
}  // namespace braid
