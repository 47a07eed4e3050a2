// Tables of TensorFlow graphs: lookups that find their contents in initialisers elsewhere.
#include <gmock/gmock.h>

#include "engine/import/import.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/graph_text.h"
#include "tests/support/message_of.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

std::string numbers(const std::string& name, const std::string& values, int count) {
  const std::string shape = count < 0 ? "" : "dim { size: " + std::to_string(count) + " } ";
  return "node { name: '" + name + "' op: 'Const' attr { key: 'dtype' value { type: DT_INT64 } } " +
         "attr { key: 'value' value { tensor { dtype: DT_INT64 tensor_shape { " + shape + "} int64_val: [" +
         values + "] } } } }\n";
}

std::string table(const std::string& name, const std::string& shared) {
  return "node { name: '" + name + "' op: 'HashTableV2' attr { key: 'shared_name' value { s: '" + shared +
         "' } } attr { key: 'key_dtype' value { type: DT_INT64 } } attr { key: 'value_dtype' value { type: "
         "DT_INT64 } } }\n";
}

const std::string kLookup = R"(
node { name: 'found' op: 'LookupTableFindV2' input: 'table' input: 'x' input: 'default' }
node { name: 'size' op: 'LookupTableSizeV2' input: 'table' }
)";

Graph load(const std::string& text, std::vector<std::string> roots) {
  return import_graph(parse_graph(text), "graph", {.roots = std::move(roots)});
}

TEST(LowerTablesTest, LookupsReadWhatAnInitialiserElsewherePutsIntoTheirTable) {
  // The initialiser reaches the table under another name that shares it.
  const Graph graph = load(table("table", "t") + table("same", "t") + numbers("keys", "5, 6", 2) +
                               numbers("values", "50, 60", 2) + numbers("x", "6, 7", 2) +
                               numbers("default", "-1", -1) + kLookup +
                               "node { name: 'fill' op: 'LookupTableImportV2' input: 'same' input: 'keys' "
                               "input: 'values' }\n"
                               "node { name: 'init_all_tables' op: 'NoOp' input: '^fill' }\n",
                           {"found", "size", "init_all_tables"});
  const Tensor* found = graph.known_value(graph.parse_value("found"));
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(tensor_to_int64s(*found), (std::vector<std::int64_t>{60, -1}));
  const Tensor* size = graph.known_value(graph.parse_value("size"));
  ASSERT_NE(size, nullptr);
  EXPECT_EQ(tensor_to_int64s(*size), std::vector<std::int64_t>{2});
}

TEST(LowerTablesTest, ATableThatNothingFillsIsRefused) {
  const std::string text = table("table", "") + numbers("x", "6", 1) + numbers("default", "-1", -1) + kLookup;
  EXPECT_THAT(message_of([&] { load(text, {"found"}); }),
              HasSubstr("[LookupTableFindV2] node 'found': nothing in the graph fills its table"));
}

}  // namespace
}  // namespace braid
