// Functions of chosen texts become the choice of what they are of all texts.
#include "engine/import/text_functions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/graph.pb.h"
#include "tests/engine/testing/graph_text.h"

namespace braid {
namespace {

using ::testing::ElementsAre;

const std::string kTexts = R"(
node { name: 'texts' op: 'Placeholder' attr { key: 'dtype' value { type: DT_STRING } } }
node { name: 'none' op: 'Const' attr { key: 'dtype' value { type: DT_STRING } }
  attr { key: 'value' value { tensor { dtype: DT_STRING tensor_shape { } string_val: '' } } } }
node { name: 'is_there' op: 'NotEqual' input: 'texts' input: 'none' attr { key: 'T' value { type: DT_STRING } } }
node { name: 'at' op: 'Where' input: 'is_there' }
node { name: 'chosen' op: 'GatherNd' input: 'texts' input: 'at' attr { key: 'Tparams' value { type: DT_STRING } }
  attr { key: 'Tindices' value { type: DT_INT64 } } }
node { name: 'same' op: 'Identity' input: 'chosen' attr { key: 'T' value { type: DT_STRING } } }
)";

const NodeDef& node_named(const GraphDef& graph, const std::string& name) {
  for (const NodeDef& each : graph.node())
    if (each.name() == name) return each;
  ADD_FAILURE() << "no node " << name;
  return graph.node(0);
}

GraphDef hoisted(const std::string& text) {
  GraphDef graph = parse_graph(kTexts + text);
  hoist_text_functions(graph);
  return graph;
}

TEST(TextFunctionsTest, HashesAreOfAllTextsAndChosenThen) {
  const GraphDef graph =
      hoisted(R"(node { name: 'hash' op: 'StringToHashBucketFast' input: 'same' input: '^none'
      attr { key: 'num_buckets' value { i: 9 } } })");
  EXPECT_EQ(node_named(graph, "hash").op(), "GatherNd");
  EXPECT_THAT(node_named(graph, "hash").input(), ElementsAre("hash/of_all", "at", "^none"));
  EXPECT_EQ(node_named(graph, "hash").attr().at("Tparams").type(), DT_INT64);
  EXPECT_EQ(node_named(graph, "hash/of_all").op(), "StringToHashBucketFast");
  EXPECT_EQ(node_named(graph, "hash/of_all").input(0), "texts");
  EXPECT_EQ(node_named(graph, "hash/of_all").attr().at("num_buckets").i(), 9);
}

TEST(TextFunctionsTest, LookupsKeepTheirTableAndDefault) {
  const GraphDef graph =
      hoisted(R"(node { name: 'found' op: 'LookupTableFindV2' input: 'table' input: 'chosen'
      input: 'default' attr { key: 'Tin' value { type: DT_STRING } } attr { key: 'Tout' value { type: DT_INT64 } } })");
  EXPECT_THAT(node_named(graph, "found").input(), ElementsAre("found/of_all", "at"));
  EXPECT_THAT(node_named(graph, "found/of_all").input(), ElementsAre("table", "texts", "default"));
}

TEST(TextFunctionsTest, TextsAreComparedByFingerprints) {
  const GraphDef graph = hoisted("");
  EXPECT_THAT(node_named(graph, "is_there").input(), ElementsAre("texts/fingerprint", "none/fingerprint"));
  EXPECT_EQ(node_named(graph, "is_there").attr().at("T").type(), DT_INT64);
  EXPECT_EQ(node_named(graph, "texts/fingerprint").attr().at("num_buckets").i(), 0);
}

TEST(TextFunctionsTest, ShapesAreThoseOfFingerprints) {
  const GraphDef graph = hoisted(R"(node { name: 'shape' op: 'Shape' input: 'texts'
      attr { key: 'T' value { type: DT_STRING } } })");
  EXPECT_THAT(node_named(graph, "shape").input(), ElementsAre("texts/fingerprint"));
}

TEST(TextFunctionsTest, CrossesAreOfFingerprints) {
  const std::string cross =
      R"(node { name: 'cross' op: 'SparseCross' input: 'at' input: 'same' input: 'size' input: 'texts'
      attr { key: 'N' value { i: 1 } } attr { key: 'hashed_output' value { b: HASHED } }
      attr { key: 'sparse_types' value { list { type: DT_STRING } } }
      attr { key: 'dense_types' value { list { type: DT_STRING } } } })";
  const auto with = [&](const std::string& is_hashed) {
    std::string text = cross;
    return hoisted(text.replace(text.find("HASHED"), 6, is_hashed));
  };
  const GraphDef graph = with("true");
  EXPECT_THAT(node_named(graph, "cross").input(),
              ElementsAre("at", "cross/fingerprints", "size", "texts/fingerprint"));
  EXPECT_THAT(node_named(graph, "cross/fingerprints").input(), ElementsAre("texts/fingerprint", "at"));
  EXPECT_EQ(node_named(graph, "cross").attr().at("sparse_types").list().type(0), DT_INT64);
  EXPECT_EQ(node_named(graph, "cross").attr().at("dense_types").list().type(0), DT_INT64);
  EXPECT_THAT(node_named(with("false"), "cross").input(), ElementsAre("at", "same", "size", "texts"))
      << "joined texts need the texts";
}

TEST(TextFunctionsTest, WhatIsNoGraphIsLeftToImport) {
  const std::string of_chosen =
      R"(node { name: 'cross' op: 'SparseCross' input: 'at' input: 'chosen' input: 'size'
      attr { key: 'hashed_output' value { b: true } } attr { key: 'N' value { i: COUNT } }
      attr { key: 'sparse_types' value { list { type: DT_STRING } } } })";
  for (const char* const count : {"-1", "2", "6148914691236517206"}) {
    std::string text = of_chosen;
    const GraphDef graph = hoisted(text.replace(text.find("COUNT"), 5, count));
    EXPECT_THAT(node_named(graph, "cross").input(), ElementsAre("at", "chosen", "size")) << count;
  }
  const GraphDef graph = hoisted(R"(
      node { name: 'a' op: 'Identity' input: 'b' } node { name: 'b' op: 'Identity' input: 'a' }
      node { name: 'less' op: 'GatherNd' input: 'texts' attr { key: 'Tparams' value { type: DT_STRING } } }
      node { name: 'cross' op: 'SparseCross' attr { key: 'hashed_output' value { b: true } } }
      node { name: 'of_circle' op: 'StringToHashBucketFast' input: 'a' }
      node { name: 'of_less' op: 'StringToHashBucketFast' input: 'less' })");
  EXPECT_EQ(node_named(graph, "of_circle").op(), "StringToHashBucketFast");
  EXPECT_EQ(node_named(graph, "of_less").op(), "StringToHashBucketFast");
}

}  // namespace
}  // namespace braid
