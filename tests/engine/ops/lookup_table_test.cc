// Lookups in tables whose contents are known, and tables in files.
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "tests/base/temp_dir.h"
#include "tests/engine/ops/op_runner.h"

namespace braid::testing {
namespace {

using Strings = std::vector<std::string>;

std::vector<Tensor> known(const std::string& op, const std::vector<Tensor>& inputs, AttrMap attrs = {}) {
  Graph graph;
  Node node;
  node.name = "op";
  node.op = &OpRegistry::global().require(op);
  node.attrs = std::move(attrs);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    node.inputs.push_back(add_known(graph, "input" + std::to_string(i), inputs[i]));
  const NodeId id = graph.add(std::move(node));
  std::vector<Tensor> values;
  for (int o = 0; o < static_cast<int>(graph.node(id).outputs.size()); ++o)
    values.push_back(*graph.known_value({id, o}));
  return values;
}

std::string refusal(const std::string& op, const std::vector<Tensor>& inputs, AttrMap attrs) {
  try {
    known(op, inputs, std::move(attrs));
  } catch (const InvalidArgument& error) {
    return error.message();
  }
  return "";
}

Tensor text(Strings words) { return Tensor::strings({static_cast<std::int64_t>(words.size())}, words); }
Tensor word(const std::string& one) { return Tensor::strings({}, {&one, 1}); }
Strings strings(const Tensor& tensor) {
  Strings result;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) result.emplace_back(tensor.string_at(i));
  return result;
}

TEST(LookupTableTest, FindsWhatIsThereAndElseTheDefault) {
  const auto places = known("braid.LookupTableFind",
                            {text({"b", "?", "a"}), i64({}, {-1}), text({"a", "b"}), i64({2}, {10, 11})});
  EXPECT_EQ(tensor_to_int64s(places[0]), (std::vector<std::int64_t>{11, -1, 10}));
  const auto names = known("braid.LookupTableFind",
                           {i64({1, 2}, {7, 5}), word("none"), i64({2}, {5, 6}), text({"five", "six"})});
  EXPECT_EQ(strings(names[0]), (Strings{"none", "five"}));
  EXPECT_EQ(names[0].shape(), (Shape{1, 2}));
}

TEST(LookupTableTest, AFilesLinesOrColumnsAreATable) {
  const TempDir directory;
  const std::string file = (directory.path() / "words.txt").string();
  std::ofstream(file) << "red,3\r\ngreen,4\nblue,5\n";
  AttrMap attrs{{"key_dtype", DType::String}, {"value_dtype", DType::Int64}, {"delimiter", ","}};
  const auto lines = known("braid.TableOfFile", {word(file)}, attrs);
  EXPECT_EQ(strings(lines[0]), (Strings{"red,3", "green,4", "blue,5"}));
  EXPECT_EQ(tensor_to_int64s(lines[1]), (std::vector<std::int64_t>{0, 1, 2}));
  attrs.set("key_index", 0);
  attrs.set("value_index", 1);
  attrs.set("vocab_size", 2);
  const auto columns = known("braid.TableOfFile", {word(file)}, attrs);
  EXPECT_EQ(strings(columns[0]), (Strings{"red", "green"}));
  EXPECT_EQ(tensor_to_int64s(columns[1]), (std::vector<std::int64_t>{3, 4}));
  attrs.set("value_index", 0);
  EXPECT_EQ(refusal("braid.TableOfFile", {word(file)}, attrs),
            "[braid.TableOfFile] node 'op': " + file + ":1: 'red' is no int64");
  attrs.set("vocab_size", 4);
  EXPECT_EQ(refusal("braid.TableOfFile", {word(file)}, attrs),
            "[braid.TableOfFile] node 'op': " + file + " has 3 lines, expected 4");
}

}  // namespace
}  // namespace braid::testing
