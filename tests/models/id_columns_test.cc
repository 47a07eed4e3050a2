// The tables of categorical columns: their names and rows, and what lists become.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/builder/graph_builder.h"
#include "engine/import/import.h"
#include "models/common.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/interpreter.h"
#include "tests/support/expect_error.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Interpreter;

ModelConfig config(std::vector<IdField> fields, std::int64_t width) {
  ModelConfig config;
  config.embedding_dim = 4;
  config.hash_buckets = 100;
  config.columns = {{"dense", Shape{3}}, {"sparse", Shape{width}}, {"label", Shape{}}};
  config.fields["sparse"] = std::move(fields);
  return config;
}

/// "name [shape] former name", of the tables.
std::vector<std::string> tables(const std::string& model, const ModelConfig& config) {
  const ModelGraph made = build_model(model, config);
  std::vector<std::string> texts;
  const Graph graph = import_graph(*made.graph);
  for (const VariableInfo& variable : list_variables(graph))
    if (variable.name.ends_with("/table"))
      texts.push_back(variable.name + " " + variable.shape.to_string() + " " +
                      graph.node(variable.handle).attrs.get<std::string>("_former_name", ""));
  return texts;
}

TEST(IdColumnsTest, TablesAreNamedAfterColumnsAndHaveARowForEachId) {
  const ModelConfig two = config({{"age", 1, 7}, {"home town", 1, 0}}, 2);
  EXPECT_THAT(
      tables("wide_deep", two),
      ElementsAre("wide/age/table [7, 1] wide/c0/table", "wide/home_town/table [100, 1] wide/c1/table",
                  "deep/age/table [7, 4] deep/c0/table", "deep/home_town/table [100, 4] deep/c1/table"));
  EXPECT_THAT(tables("dlrm", two),
              ElementsAre("age/table [7, 4] table0/table", "home_town/table [100, 4] table1/table"));
  EXPECT_THAT(tables("dcn_v2", config({}, 2)), ElementsAre("c0/table [100, 4] ", "c1/table [100, 4] "));
}

TEST(IdColumnsTest, NamesThatBecomeEqualStayApart) {
  EXPECT_THAT(tables("dlrm", config({{"a b", 1, 2}, {"a:b", 1, 2}, {"_", 1, 2}}, 3)),
              ElementsAre("a_b/table [2, 4] table0/table", "a_b_2/table [2, 4] table1/table",
                          "column_/table [2, 4] table2/table"));
}

TEST(IdColumnsTest, FieldsThatAreNotTheBatchAreRefused) {
  EXPECT_ERROR(build_model("dlrm", config({{"tags", 3, 9}}, 2)), InvalidArgument,
               HasSubstr("model 'dlrm': the columns of 'sparse' have 3 values a row, its batches 2"));
}

TEST(IdColumnsTest, AListHasOneTable) {
  EXPECT_THAT(tables("wide_deep", config({{"age", 1, 7}, {"tags", 3, 9}}, 4)),
              ElementsAre("wide/age/table [7, 1] wide/c0/table", "wide/tags/table [9, 1] ",
                          "deep/age/table [7, 4] deep/c0/table", "deep/tags/table [9, 4] "));
}

TEST(IdColumnsTest, AListIsTheMeanOrTheSumOfTheRowsOfItsIds) {
  const ModelConfig lists = config({{"tags", 3, 5}}, 3);
  GraphBuilder b;
  const Output ids = b.placeholder("sparse", DType::Int64, {-1, 3});
  const std::vector<IdColumn> columns = id_columns(b, lists, "m", "sparse", ids, 100);
  Output mean, sum;
  {
    const NameScope scope(b, "mean");
    mean = embedded(b, lists, columns[0], 2, {});
  }
  {
    const NameScope scope(b, "sum");
    sum = embedded(b, lists, columns[0], 2, {}, Combiner::Sum);
  }
  const Graph graph = import_graph(b.graph());
  Interpreter interpreter(graph);
  const std::vector<float> rows{100, 100, 1, 10, 2, 20, 3, 30, 4, 40};  // row 0 stands for no id
  for (const char* table : {"mean/tags/table", "sum/tags/table"})
    interpreter.variables()[table] = Tensor::from<float>({5, 2}, rows);
  const std::vector<std::int64_t> batch{4, 2, 0, 1, 0, 0, 0, 0, 0, 3, 3, 3};
  const auto results =
      interpreter.run({{"sparse", Tensor::from<std::int64_t>({4, 3}, batch)}}, {mean.name(), sum.name()});
  EXPECT_THAT(results[0].data<float>(), ElementsAre(3, 30, 1, 10, 0, 0, 3, 30));
  EXPECT_THAT(results[1].data<float>(), ElementsAre(6, 60, 1, 10, 0, 0, 9, 90));
}

TEST(IdColumnsTest, TheItemsOfDinHaveTheRowsOfBothColumns) {
  ModelConfig din = config({{"city", 1, 3}}, 1);
  din.columns["history"] = Shape{4};
  din.columns["item"] = Shape{1};
  din.fields["history"] = {{"seen", 4, 21}};
  din.fields["item"] = {{"item", 1, 25}};
  EXPECT_THAT(tables("din", din), ElementsAre("items/table [26, 4] ", "city/table [3, 4] c0/table"));
}

}  // namespace
}  // namespace braid
