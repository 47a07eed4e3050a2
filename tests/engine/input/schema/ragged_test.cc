// Ragged columns: what a schema makes of texts and values, how they lie in batches, and how much room they
// need.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>
#include <random>

#include "base/error.h"
#include "base/init.h"
#include "engine/input/formats/readers.h"
#include "engine/input/generators/generator.h"
#include "engine/input/schema/ragged_room.h"
#include "engine/input/schema/schema.h"
#include "engine/input/stream/row_blocks.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

ColumnSpec tags(std::int64_t length = 0) {
  return {.name = "tags",
          .kind = ColumnKind::Categorical,
          .vocabulary = {"a", "b", "c", "d"},
          .length = length,
          .ragged = true};
}
ColumnSpec weights(std::int64_t length = 0) {
  return {.name = "w", .kind = ColumnKind::Numeric, .length = length, .ragged = true};
}
ColumnSpec weighted(std::int64_t length = 0) {
  ColumnSpec column = tags(length);
  column.weights = "w";
  return column;
}

template <class T>
std::vector<T> values(const Tensor& tensor) {
  const auto data = tensor.data<T>();
  return {data.begin(), data.end()};
}

TEST(RaggedSchemaTest, ARowHasAsManyIdsAsItsField) {
  TableBuilder builder({tags()});
  for (const char* text : {"a|b", "", "d", "|c||"}) {
    EXPECT_THAT(builder.add_text(0, text), IsEmpty());
    builder.end_row();
  }
  const std::vector<std::string_view> words{"d", "d", "a"};
  EXPECT_THAT(builder.add_values(0, {.texts = words}), IsEmpty());
  builder.end_row();
  EXPECT_THAT(builder.add_text(0, "a|b|nothing"), HasSubstr("'nothing' is not in the vocabulary"));
  builder.drop_row();
  builder.blank_row();
  const auto table = builder.finish(0);
  ASSERT_EQ(table->rows, 6);
  const TableColumn& column = *table->find("sparse/tags");
  EXPECT_THAT(values<std::int64_t>(column.data), ElementsAre(0, 1, 3, 2, 3, 3, 0))
      << "nothing fills, so ids begin at 0";
  EXPECT_THAT(values<std::int64_t>(column.offsets), ElementsAre(0, 2, 2, 3, 4, 7, 7));
  EXPECT_EQ(column.fields[0].ids, 4);
  EXPECT_FALSE(column.weights.defined());
}

TEST(RaggedSchemaTest, LengthCutsIdsAndTheirWeights) {
  TableBuilder builder({weighted(2), weights(2)});
  EXPECT_THAT(builder.add_text(0, "a|b|c"), IsEmpty());
  EXPECT_THAT(builder.add_text(1, "0.5|2|7"), IsEmpty());
  builder.end_row();
  const auto table = builder.finish(0);
  ASSERT_EQ(table->columns.size(), 1U);
  EXPECT_THAT(values<std::int64_t>(table->columns[0].data), ElementsAre(0, 1));
  EXPECT_THAT(values<float>(table->columns[0].weights), ElementsAre(0.5F, 2.0F));
}

TEST(RaggedSchemaTest, WeightsStandInTheFieldOrAreAsManyAsIds) {
  ColumnSpec both = tags();
  both.weight_separator = ':';
  TableBuilder builder({both});
  EXPECT_THAT(builder.add_text(0, "a:0.5|b|c:-2"), IsEmpty());
  builder.end_row();
  EXPECT_THAT(builder.add_text(0, "a:x"), HasSubstr("'x' is not a weight"));
  builder.drop_row();
  EXPECT_THAT(values<float>(builder.finish(0)->columns[0].weights), ElementsAre(0.5F, 1.0F, -2.0F));

  TableBuilder apart({weights(), weighted()});
  EXPECT_THAT(apart.add_text(0, "1|2|3"), IsEmpty());
  EXPECT_THAT(apart.add_text(1, "a|b"), HasSubstr("there are 3 weights for 2 ids (weights are 'w')"));
}

TEST(RaggedSchemaTest, RefusesWhatHasNoMeaning) {
  const auto refuse = [](std::vector<ColumnSpec> columns, const char* why) {
    EXPECT_ERROR(TableBuilder{columns}, InvalidArgument, HasSubstr(why));
  };
  refuse({weights()}, "must be the `weights` of a ragged CATEGORICAL");
  refuse({weighted()}, "its weights 'w' are no column of the schema");
  refuse({weighted(3), weights(4)}, "its length must be that of 'tags'");
  ColumnSpec label = tags();
  label.kind = ColumnKind::Class;
  refuse({label}, "ragged is for CATEGORICAL");
  ColumnSpec twice = weighted();
  twice.weight_separator = ':';
  refuse({twice, weights()}, "one says its weights");
  refuse({tags(), tags()}, "another column is 'sparse/tags' already");
}

std::shared_ptr<const Table> rows_of_lengths(const std::vector<std::int64_t>& lengths) {
  auto table = std::make_shared<Table>();
  table->rows = std::ssize(lengths);
  std::vector<std::int64_t> offsets{0}, ids;
  for (const std::int64_t length : lengths) {
    for (std::int64_t i = 0; i < length; ++i) ids.push_back(100 * std::ssize(offsets) + i);
    offsets.push_back(std::ssize(ids));
  }
  TableColumn column{"tags", Tensor::from<std::int64_t>(Shape{std::ssize(ids)}, ids)};
  column.offsets = Tensor::from<std::int64_t>(Shape{std::ssize(offsets)}, offsets);
  column.weights = Tensor::zeros(DType::Float32, Shape{std::ssize(ids)});
  for (std::size_t i = 0; i < ids.size(); ++i)
    column.weights.data<float>()[i] = static_cast<float>(ids[i]) / 2;
  table->columns.push_back(column);
  return table;
}

TEST(RaggedBatchTest, HasTheRowsBagsOneAfterAnother) {
  Batcher batcher(rows_of_lengths({2, 0, 3, 1}), {"tags", "tags/offsets", "tags/weights"},
                  {.global_batch = 4, .seed = 3});
  ASSERT_EQ(batcher.shape(0, 4), (Shape{64}));
  ASSERT_EQ(batcher.shape(1, 4), (Shape{5}));
  EXPECT_EQ(batcher.dtype(1), DType::Int32);
  EXPECT_TRUE(batcher.ragged(0) && batcher.ragged(1));
  const Batch batch = batcher.make(0);
  const auto ids = batch.tensors[0].data<std::int64_t>();
  const auto offsets = batch.tensors[1].data<std::int32_t>();
  EXPECT_EQ(offsets[4], 6);
  std::vector<std::vector<std::int64_t>> bags;
  for (std::size_t r = 0; r < 4; ++r)
    bags.emplace_back(ids.begin() + offsets[r], ids.begin() + offsets[r + 1]);
  EXPECT_THAT(bags, testing::UnorderedElementsAre(ElementsAre(100, 101), IsEmpty(),
                                                  ElementsAre(300, 301, 302), ElementsAre(400)));
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_EQ(batch.tensors[2].data<float>()[i], static_cast<float>(ids[i]) / 2);
  for (std::size_t i = 6; i < 64; ++i) EXPECT_EQ(ids[i], ids[5]) << "no row that the batch does not have";
  EXPECT_EQ(batch.tensors[2].data<float>()[6], 0.0F);
}

TEST(RaggedBatchTest, WorkersPartsAreTheWholeBatch) {
  const auto table = rows_of_lengths({2, 0, 3, 1, 5, 1, 0, 4});
  Batcher whole(table, {"tags", "tags/offsets"}, {.global_batch = 8, .seed = 1});
  const Batch all = whole.make(0);
  const auto ids = all.tensors[0].data<std::int64_t>();
  std::vector<std::int64_t> together;
  for (int rank = 0; rank < 3; ++rank) {
    Batcher part(table, {"tags", "tags/offsets"}, {.global_batch = 8, .rank = rank, .world = 3, .seed = 1});
    EXPECT_EQ(part.shape(0, 2), (Shape{64})) << "all workers have one room";
    const Batch batch = part.make(0);
    const auto own = batch.tensors[0].data<std::int64_t>();
    together.insert(together.end(), own.begin(), own.begin() + batch.tensors[1].data<std::int32_t>().back());
  }
  EXPECT_EQ(together, std::vector<std::int64_t>(ids.begin(), ids.begin() + 16));
}

TEST(RaggedBatchTest, MoreValuesThanThereIsRoomForAreRefusedByColumnAndRow) {
  auto table = std::make_shared<Table>(*rows_of_lengths({2, 0, 70, 1}));
  table->columns[0].batch_values = 72;
  Batcher batcher(table, {"tags", "tags/offsets"}, {.global_batch = 4, .shuffle = false});
  EXPECT_ERROR(batcher.make(0), InvalidArgument,
               AllOf(HasSubstr("column 'tags': batch 0 has 73 ids, more than the 72"),
                     HasSubstr("row 3 alone has 70"), HasSubstr("batch_ids of the column to 73")));
}

TEST(RaggedRoomTest, NoBatchHasMoreThanTheMost) {
  std::mt19937_64 random(5);
  std::lognormal_distribution<double> draw(1.0, 1.5);
  std::vector<std::int64_t> lengths;
  for (int r = 0; r < 2000; ++r) lengths.push_back(static_cast<std::int64_t>(draw(random)));
  lengths[77] = 10'000;
  const auto table = rows_of_lengths(lengths);
  const TableColumn& column = table->columns[0];
  const auto all = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  for (const std::int64_t rows : {1, 7, 100, 1999, 2000, 4100}) {
    const std::int64_t drawn = most_values(column, rows, RowOrder::Drawn);
    EXPECT_LE(drawn, most_values(column, rows, RowOrder::Any));
    EXPECT_LE(drawn, most_values(column, rows, RowOrder::Drawn, true)) << "a row may come twice";
    EXPECT_GE(drawn, 10'000) << "the longest row may be among them";
    EXPECT_LE(drawn, (rows + 1999) / 2000 * all);
    for (const auto& [shuffle, order] : {std::pair{true, RowOrder::Drawn}, {false, RowOrder::AsTheyLie}}) {
      const std::int64_t most = most_values(column, rows, order, true);
      Batcher batcher(table, {"tags/offsets"},
                      {.global_batch = rows, .shuffle = shuffle, .seed = 2, .carry_remainder = true});
      std::int64_t found = 0;
      for (std::uint64_t t = 0; t < 300; ++t)
        found = std::max<std::int64_t>(found, batcher.make(t).tensors[0].data<std::int32_t>().back());
      EXPECT_LE(found, most) << rows << " rows";
      EXPECT_TRUE(shuffle || rows != 1 || most == 10'000);
    }
  }
  EXPECT_EQ(most_values(column, 2000, RowOrder::Drawn), all);
}

TEST(RaggedRoomTest, WhereItGrowsItBeginsWithWhatNearlyAllBatchesHave) {
  std::mt19937_64 random(9);
  std::normal_distribution<double> draw(200, 40);
  std::vector<std::int64_t> lengths;
  for (int r = 0; r < 3000; ++r)
    lengths.push_back(std::clamp<std::int64_t>(std::lround(draw(random)), 1, 400));
  const auto table = rows_of_lengths(lengths);
  const std::vector<std::string> columns{"tags", "tags/offsets"};
  Batcher any(table, columns, {.global_batch = 64, .seed = 1});
  Batcher usual(table, columns, {.global_batch = 64, .seed = 1, .room_grows = true});
  EXPECT_LE(usual.shape(0, 64)[0], 15'360) << "64 * 200, 4.5 * 8 * 40, and the longest: 14,600";
  EXPECT_GE(any.shape(0, 64)[0], 17'000);
  for (std::uint64_t t = 0; t < 200; ++t) EXPECT_NO_THROW(usual.make(t));
  EXPECT_GT(usual_values(table->columns[0], 64, true), usual_values(table->columns[0], 64, false));
}

TEST(RaggedRoomTest, RoomsAreFew) {
  EXPECT_EQ(rounded_room(0), 64);
  EXPECT_EQ(rounded_room(65), 96);
  EXPECT_EQ(rounded_room(97), 128);
  EXPECT_EQ(rounded_room(10'000), 10'240);
  EXPECT_EQ(rounded_room(1024), 1024);
  EXPECT_EQ(rounded_room(1025), 1088);
  EXPECT_EQ(rounded_room(188'000), 188'416);
}

TEST(RaggedRoomTest, RowsOfAColumnByTheirNumbers) {
  const auto table = rows_of_lengths({2, 0, 3});
  const std::vector<std::int64_t> rows{2, 1, 0, 2};
  const TableColumn picked = rows_of_column(table->columns[0], rows);
  EXPECT_THAT(values<std::int64_t>(picked.offsets), ElementsAre(0, 3, 3, 5, 8));
  EXPECT_THAT(values<std::int64_t>(picked.data), ElementsAre(300, 301, 302, 100, 101, 300, 301, 302));
  EXPECT_THAT(values<float>(picked.weights), ElementsAre(150, 150.5, 151, 50, 50.5, 150, 150.5, 151));
}

TEST(RaggedStreamTest, BlocksGiveTheRowsOfTheWholeFileAlsoAroundBadOnes) {
  const TempDir dir;
  const auto path = dir.path() / "a.csv";
  {
    std::ofstream file(path);
    for (int r = 0; r < 300; ++r) {
      for (int i = 0; i < r % 5; ++i) file << (i == 0 ? "" : "|") << "abcd"[(r + i) % 4];
      file << "," << (r == 123 ? "bad" : std::to_string(r)) << "\n";
    }
  }
  const std::vector<ColumnSpec> columns{tags(), {.name = "x", .kind = ColumnKind::Numeric}};
  const auto whole = read_csv({path}, {.columns = columns, .read = {.max_bad_records = 1}});
  ASSERT_EQ(whole->rows, 299);
  BlockIndexOptions index;
  index.directory = dir.path();
  index.block_bytes = 200;
  index.layout = RecordLayout::Fields;
  const std::shared_ptr<BlockSource> source = make_row_blocks(
      block_indexes({path}, [&](const auto&) { return index; }),
      [&](const ReadOptions& read) { return stream_csv({}, {.columns = columns, .read = read}); }, 1);
  std::vector<BlockPart> parts;
  for (std::size_t b = 0; b < source->blocks().size(); ++b) parts.push_back({b, 0, source->blocks()[b].rows});
  ASSERT_GT(parts.size(), 5U);
  const auto table = source->read(parts);
  ASSERT_EQ(table->rows, 300) << "the bad row is its neighbour";
  std::vector<std::int64_t> without(300);
  std::iota(without.begin(), without.end(), 0);
  without.erase(without.begin() + 123);
  const TableColumn found = rows_of_column(*table->find("sparse/tags"), without);
  EXPECT_EQ(values<std::int64_t>(found.data), values<std::int64_t>(whole->find("sparse/tags")->data));
  EXPECT_EQ(values<std::int64_t>(found.offsets), values<std::int64_t>(whole->find("sparse/tags")->offsets));
}

TEST(RaggedGeneratorTest, MakesListsOfAllLengthsWithAsManyWeights) {
  GeneratorOptions options{
      .columns = {weighted(3), weights(3), {.name = "y", .kind = ColumnKind::Label}}, .rows = 200, .seed = 4};
  const auto table = generate_rows(options);
  const TableColumn& column = *table->find("sparse/tags");
  const auto offsets = values<std::int64_t>(column.offsets);
  std::vector<int> seen(4);
  for (std::size_t r = 0; r < 200; ++r) ++seen[static_cast<std::size_t>(offsets[r + 1] - offsets[r])];
  EXPECT_THAT(seen, testing::Each(testing::Gt(20)));
  EXPECT_EQ(column.weights.shape(), column.data.shape());
}

TEST(RaggedGeneratorTest, MakesAllIdsOfBuckets) {
  std::vector<ColumnSpec> columns{{.name = "age", .kind = ColumnKind::Categorical, .borders = {18, 30.5}}};
  for (const TimePart part : {TimePart::Minute, TimePart::Hour, TimePart::Weekday, TimePart::MonthDay,
                              TimePart::Month, TimePart::YearDay})
    columns.push_back({.name = "p" + std::to_string(static_cast<int>(part)),
                       .kind = ColumnKind::Categorical,
                       .time_part = part});
  const auto table = generate_rows({.columns = columns, .rows = 20'000, .seed = 4});
  const auto ids = table->find("sparse")->data.data<std::int64_t>();
  for (std::size_t c = 0; c < columns.size(); ++c) {
    std::vector<bool> seen(static_cast<std::size_t>(columns[c].ids()));
    for (std::size_t r = 0; r < 20'000; ++r)
      seen[static_cast<std::size_t>(ids[r * columns.size() + c])] = true;
    EXPECT_THAT(seen, testing::Each(true)) << columns[c].name;
  }
}

}  // namespace
}  // namespace braid
