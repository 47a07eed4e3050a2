// Lookups in tables whose contents are known, and tables in files.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/engine/ops/known_values.h"
#include "tests/engine/ops/op_runner.h"
#include "tests/support/temp_dir.h"

namespace braid::testing {
namespace {

using Strings = std::vector<std::string>;

TEST(LookupTableTest, FindsWhatIsThereAndElseTheDefault) {
  const auto places = known_outputs(
      "braid.LookupTableFind", {text({"b", "?", "a"}), i64({}, {-1}), text({"a", "b"}), i64({2}, {10, 11})});
  EXPECT_EQ(tensor_to_int64s(places[0]), (std::vector<std::int64_t>{11, -1, 10}));
  const auto names = known_outputs(
      "braid.LookupTableFind", {i64({1, 2}, {7, 5}), word("none"), i64({2}, {5, 6}), text({"five", "six"})});
  EXPECT_EQ(to_strings(names[0]), (Strings{"none", "five"}));
  EXPECT_EQ(names[0].shape(), (Shape{1, 2}));
}

/// The lookups of a step: x is fed, the table is known.
std::vector<std::int64_t> looked_up(const Tensor& x, const Tensor& keys) {
  Graph graph;
  const ValueRef fed = add_input(graph, "x", x.dtype(), x.shape());
  Node find;
  find.name = "find";
  find.op = &OpRegistry::global().require("braid.LookupTableFind");
  find.inputs = {fed, add_known(graph, "default", i64({}, {-1})), add_known(graph, "keys", keys),
                 add_known(graph, "values", i64({2}, {10, 11}))};
  const NodeId id = graph.add(std::move(find));
  Execution execution;
  execution.feeds[fed.node] = x;
  return tensor_to_int64s(evaluate(graph, execution, {{id, 0}})[0]);
}

TEST(LookupTableTest, NumbersOfAStepAreLookedUpInAKnownTable) {
  const std::vector<std::int32_t> x{5, 9, 6, 5}, keys{5, 6};
  const std::vector<std::int64_t> expected{10, -1, 11, 10};
  EXPECT_EQ(looked_up(i64({2, 2}, {5, 9, 6, 5}), i64({2}, {5, 6})), expected);
  EXPECT_EQ(looked_up(Tensor::from<std::int32_t>({2, 2}, x), Tensor::from<std::int32_t>({2}, keys)),
            expected);
}

TEST(LookupTableTest, AFilesLinesOrColumnsAreATable) {
  const TempDir directory;
  const std::string file = (directory.path() / "words.txt").string();
  std::ofstream(file) << "red,3\r\ngreen,4\nblue,5\n";
  AttrMap attrs{{"key_dtype", DType::String}, {"value_dtype", DType::Int64}, {"delimiter", ","}};
  const auto lines = known_outputs("braid.TableOfFile", {word(file)}, attrs);
  EXPECT_EQ(to_strings(lines[0]), (Strings{"red,3", "green,4", "blue,5"}));
  EXPECT_EQ(tensor_to_int64s(lines[1]), (std::vector<std::int64_t>{0, 1, 2}));
  attrs.set("key_index", 0);
  attrs.set("value_index", 1);
  attrs.set("vocab_size", 2);
  const auto columns = known_outputs("braid.TableOfFile", {word(file)}, attrs);
  EXPECT_EQ(to_strings(columns[0]), (Strings{"red", "green"}));
  EXPECT_EQ(tensor_to_int64s(columns[1]), (std::vector<std::int64_t>{3, 4}));
  attrs.set("value_index", 0);
  EXPECT_EQ(known_refusal("braid.TableOfFile", {word(file)}, attrs),
            "[braid.TableOfFile] node 'op': " + file + ":1: 'red' is no int64");
  attrs.set("vocab_size", 4);
  EXPECT_EQ(known_refusal("braid.TableOfFile", {word(file)}, attrs),
            "[braid.TableOfFile] node 'op': " + file + " has 3 lines, expected 4");
}

}  // namespace
}  // namespace braid::testing
