// The tables of categorical columns: their names and rows, and what lists become.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "engine/builder/graph_builder.h"
#include "engine/import/import.h"
#include "models/id_columns.h"
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

IdField ragged(const std::string& name, std::int64_t ids, bool weighted = false) {
  return {.name = name,
          .length = 0,
          .ids = ids,
          .filled = false,
          .input = "sparse/" + name,
          .weighted = weighted};
}

TEST(RaggedColumnsTest, AllModelsOfTablesReadThemBesideOthersAndAlone) {
  for (const char* model : {"wide_deep", "dlrm", "deepfm", "dcn_v2", "mmoe", "din", "dlrm_v2"}) {
    SCOPED_TRACE(model);
    ModelConfig both = config({{"city", 1, 3}, ragged("tags", 7, true)}, 1);
    for (const char* label : {"click", "purchase"}) both.columns[label] = Shape{};
    both.columns["history"] = Shape{4};
    both.columns["item"] = Shape{1};
    EXPECT_THAT(tables(model, both), ::testing::Contains(HasSubstr("tags/table [7, ")));
    const ModelGraph made = build_model(model, both);
    for (const char* column : {"sparse", "sparse/tags", "sparse/tags/offsets", "sparse/tags/weights"})
      EXPECT_THAT(made.columns, ::testing::Contains(column));
    ModelConfig alone = both;
    alone.columns.erase("sparse");
    alone.fields["sparse"] = {ragged("tags", 0)};
    EXPECT_THAT(tables(model, alone), ::testing::Contains(HasSubstr("tags/table [100, ")));
    EXPECT_THAT(build_model(model, alone).columns, ::testing::Not(::testing::Contains("sparse")));
  }
}

TEST(NumericColumnsTest, ModelsOfTablesNeedNone) {
  for (const char* model : {"wide_deep", "dlrm", "deepfm", "dcn_v2", "mmoe", "din"}) {
    SCOPED_TRACE(model);
    ModelConfig categories = config({{"city", 1, 3}, {"plan", 1, 5}}, 2);
    for (const char* label : {"click", "purchase"}) categories.columns[label] = Shape{};
    categories.columns["history"] = Shape{4};
    categories.columns["item"] = Shape{1};
    EXPECT_THAT(build_model(model, categories).columns, ::testing::Contains("dense"));
    categories.columns.erase("dense");
    EXPECT_THAT(build_model(model, categories).columns, ::testing::Not(::testing::Contains("dense")));
  }
}

TEST(NumericColumnsTest, DlrmHasPairsOfColumns) {
  ModelConfig one = config({{"city", 1, 3}}, 1);
  one.columns.erase("dense");
  EXPECT_THAT([&] { build_model("dlrm", one); },
              ::testing::ThrowsMessage<InvalidArgument>(HasSubstr("multiplies pairs of columns")));
}

TEST(RaggedColumnsTest, ARaggedHistoryOfDinIsRefused) {
  ModelConfig din = config({{"city", 1, 3}}, 1);
  din.columns["item"] = Shape{1};
  IdField seen = ragged("seen", 5);
  seen.input = "history/seen";
  din.fields["history"] = {seen};
  EXPECT_ERROR(build_model("din", din), InvalidArgument,
               HasSubstr("reads 'history' as lists of a fixed length, and column 'seen' is ragged"));
}

TEST(ColumnTablesTest, ColumnsOfOneWordShareATableOfTheMostRows) {
  IdField seen{"seen", 3, 21}, item{"item", 1, 25}, tags = ragged("tags", 30);
  for (IdField* field : {&seen, &item, &tags}) field->table.shared = "things";
  const ModelConfig shared = config({seen, item, {"city", 1, 4}, tags}, 5);
  EXPECT_THAT(tables("dcn_v2", shared), ElementsAre("things/table [30, 4] ", "city/table [4, 4] c4/table"));
  EXPECT_THAT(tables("wide_deep", shared),
              ElementsAre("wide/things/table [30, 1] ", "wide/city/table [4, 1] wide/c4/table",
                          "deep/things/table [30, 4] ", "deep/city/table [4, 4] deep/c4/table"));
  IdField other = item;
  other.table.dim = 2;
  EXPECT_ERROR(build_model("dcn_v2", config({seen, other}, 4)), InvalidArgument,
               HasSubstr("columns 'seen' and 'item' share table 'things', so their embedding_dim"));
}

TEST(ColumnTablesTest, AColumnHasAWidthAndARangeOfItsOwn) {
  IdField narrow{"city", 1, 3}, wide{"item", 1, 25};
  narrow.table.dim = 2;
  wide.table.dim = 9;
  wide.table.init = 0.25;
  const ModelConfig columns = config({narrow, wide, {"site", 1, 5}}, 3);
  for (const char* model : {"wide_deep", "dcn_v2", "dlrm_v2"})
    EXPECT_THAT(tables(model, columns),
                ::testing::IsSupersetOf({HasSubstr("city/table [3, 2]"), HasSubstr("item/table [25, 9]"),
                                         HasSubstr("site/table [5, 4]")}))
        << model;
  for (const char* model : {"dlrm", "deepfm"})
    EXPECT_ERROR(build_model(model, columns), InvalidArgument,
                 HasSubstr("embedding_dim of column 'city' is 2, but it multiplies"));
  const Graph graph = import_graph(*build_model("dcn_v2", columns).graph);
  for (const VariableInfo& variable : list_variables(graph))
    EXPECT_TRUE(variable.name != "item/table" ||
                graph.node(variable.handle).attrs.get("_init_b", 0.0) == 0.25);
}

TEST(ColumnTablesTest, PoolingIsTheColumns) {
  IdField list{"tags", 3, 5};
  list.table.pooling = ListPooling::SqrtN;
  IdField most = ragged("most", 5);
  most.table.pooling = ListPooling::Max;
  const ModelConfig lists = config({list, most}, 3);
  GraphBuilder b;
  const IdInputs inputs = id_inputs(b, lists, "m", "sparse");
  const std::vector<IdColumn> columns = id_columns(b, lists, "m", "sparse", inputs, 100);
  const Output root = embedded(b, lists, columns[0], 2, {}), largest = embedded(b, lists, columns[1], 2, {});
  const Graph graph = import_graph(b.graph());
  Interpreter interpreter(graph);
  const std::vector<float> rows{100, 100, 1, 10, 2, 20, 3, -30, 4, 40};
  for (const char* table : {"tags/table", "most/table"})
    interpreter.variables()[table] = Tensor::from<float>({5, 2}, rows);
  const std::vector<std::int64_t> batch{1, 1, 2, 0, 0, 0, 3, 0, 0}, ids{3, 2, 4, 0, 0};
  const std::vector<std::int32_t> offsets{0, 2, 2, 3};
  const auto results = interpreter.run({{"sparse", Tensor::from<std::int64_t>({3, 3}, batch)},
                                        {"sparse/most", Tensor::from<std::int64_t>({5}, ids)},
                                        {"sparse/most/offsets", Tensor::from<std::int32_t>({4}, offsets)}},
                                       {root.name(), largest.name()});
  EXPECT_THAT(results[0].data<float>(),
              ::testing::Pointwise(::testing::FloatNear(1e-5F),
                                   {4 / std::sqrt(3.0F), 40 / std::sqrt(3.0F), 0.0F, 0.0F, 3.0F, -30.0F}));
  EXPECT_THAT(results[1].data<float>(), ElementsAre(3, 20, 0, 0, 4, 40));
  most.weighted = true;
  EXPECT_ERROR(build_model("dcn_v2", config({most}, 0)), InvalidArgument,
               HasSubstr("pooling MAX has no weights"));
  list.table.pooling = ListPooling::Max;
  EXPECT_ERROR(build_model("dcn_v2", config({list}, 3)), InvalidArgument,
               HasSubstr("pooling MAX is for ragged"));
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
