// Rows of ragged columns are dealt to workers by their work: the same rows over all workers, about as much
// work for each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <numeric>
#include <random>

#include "engine/input/formats/readers.h"
#include "engine/input/schema/row_work.h"
#include "engine/input/stream/row_blocks.h"
#include "engine/input/stream/streamed_rows.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

template <class T>
std::vector<T> values_of(const Tensor& tensor) {
  const auto data = tensor.data<T>();
  return {data.begin(), data.end()};
}

/// Lists of `lengths`, whose values_of are their row's number.
std::shared_ptr<const Table> numbered_lists(const std::vector<std::int64_t>& lengths) {
  auto table = std::make_shared<Table>();
  table->rows = std::ssize(lengths);
  std::vector<std::int64_t> data, offsets{0};
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    data.insert(data.end(), static_cast<std::size_t>(lengths[r]), static_cast<std::int64_t>(r));
    offsets.push_back(std::ssize(data));
  }
  std::vector<float> x(lengths.size());
  std::iota(x.begin(), x.end(), 0.0F);
  table->columns.push_back({.name = "x", .data = Tensor::from<float>(Shape{table->rows}, x)});
  table->columns.push_back({.name = "h",
                            .data = Tensor::from<std::int64_t>(Shape{std::ssize(data)}, data),
                            .offsets = Tensor::from<std::int64_t>(Shape{std::ssize(offsets)}, offsets)});
  return table;
}

TEST(EqualWorkTest, WorkersTakeAsManyRowsAndAboutAsMuchWork) {
  std::mt19937 random(3);
  for (const int world : {1, 2, 3, 8}) {
    std::vector<std::uint64_t> work(256);
    for (std::uint64_t& w : work)
      w = static_cast<std::uint64_t>(std::exp(8 + std::normal_distribution<>(0, 1)(random)));
    const std::vector<int> workers = deal_rows(work, world);
    std::vector<std::uint64_t> loads(static_cast<std::size_t>(world));
    std::vector<std::int64_t> rows(loads.size());
    for (std::size_t r = 0; r < work.size(); ++r) {
      loads[static_cast<std::size_t>(workers[r])] += work[r];
      ++rows[static_cast<std::size_t>(workers[r])];
    }
    for (int w = 0; w < world; ++w)
      EXPECT_EQ(rows[static_cast<std::size_t>(w)], row_part(256, w, world).rows);
    EXPECT_LT(static_cast<double>(*std::ranges::max_element(loads)),
              1.02 * static_cast<double>(*std::ranges::min_element(loads)));
  }
  EXPECT_THAT(deal_rows(std::vector<std::uint64_t>{9, 1, 1, 9, 5}, 2), testing::ElementsAre(0, 1, 0, 1, 0));
  EXPECT_THAT(deal_rows(std::vector<std::uint64_t>{4, 4, 4}, 5), testing::ElementsAre(0, 1, 2));
  EXPECT_TRUE(deal_rows({}, 3).empty());
}

TEST(EqualWorkTest, BatchesHaveTheSameRowsOverAllWorkers) {
  std::mt19937 random(5);
  std::vector<std::int64_t> lengths(103);
  for (std::int64_t& n : lengths) n = static_cast<std::int64_t>(random() % 40);
  const auto table = numbered_lists(lengths);
  for (const bool shuffle : {false, true})
    for (const bool carry : {false, true}) {
      BatchOptions options{.global_batch = 25, .shuffle = shuffle, .seed = 9, .carry_remainder = carry};
      Batcher whole(table, {"x", "h", "h/offsets"}, options);
      options.world = 3;
      options.equal_work = true;
      options.work = {7, 2};
      std::vector<std::unique_ptr<Batcher>> workers;
      for (options.rank = 0; options.rank < 3; ++options.rank)
        workers.push_back(
            std::make_unique<Batcher>(table, std::vector<std::string>{"x", "h", "h/offsets"}, options));
      for (std::uint64_t t = 0; t < 9; ++t) {
        const auto all = values_of<float>(whole.make(t).tensors[0]);
        std::vector<float> together;
        std::vector<std::uint64_t> loads;
        for (std::size_t w = 0; w < 3; ++w) {
          const Batch batch = workers[w]->make(t);
          EXPECT_EQ(batch.rows, row_part(25, static_cast<int>(w), 3).rows);
          const auto rows = values_of<float>(batch.tensors[0]);
          const auto offsets = values_of<std::int32_t>(batch.tensors[2]);
          std::uint64_t load = 0;
          auto place = all.begin();
          for (std::size_t r = 0; r < rows.size(); ++r) {
            const std::int64_t n = lengths[static_cast<std::size_t>(rows[r])];
            EXPECT_EQ(offsets[r + 1] - offsets[r], n);
            load += static_cast<std::uint64_t>(7 * n + 2 * n * n);
            place = std::find(place, all.end(), rows[r]);
            ASSERT_NE(place, all.end()) << "rows keep the order of the batch";
          }
          loads.push_back(load);
          together.insert(together.end(), rows.begin(), rows.end());
        }
        EXPECT_THAT(together, testing::UnorderedElementsAreArray(all));
        EXPECT_LT(*std::ranges::max_element(loads) - *std::ranges::min_element(loads), 2000U);
      }
    }
}

TEST(EqualWorkTest, TheLongestListIsThatOfAllWorkersRows) {
  const std::vector<std::int64_t> lengths{3, 9, 1, 4, 2, 7, 7, 0, 5, 6, 1, 1};
  const auto table = numbered_lists(lengths);
  const std::vector<std::string> names{"x", "h/longest"};
  for (const bool equal_work : {false, true}) {
    BatchOptions options{.global_batch = 4, .shuffle = false};
    Batcher whole(table, names, options);
    options.world = 2;
    options.equal_work = equal_work;
    Batcher first(table, names, options);
    options.rank = 1;
    Batcher second(table, names, options);
    EXPECT_EQ(first.shape(1, 2), Shape{2});
    EXPECT_EQ(first.dtype(1), DType::Int32);
    const std::vector<std::int32_t> longest{9, 7, 6};
    for (std::size_t t = 0; t < 3; ++t) {
      const auto both = [&](Batcher& batcher) {
        const Batch batch = batcher.make(t);
        std::int64_t own = 0;
        for (const float row : values_of<float>(batch.tensors[0]))
          own = std::max(own, lengths[static_cast<std::size_t>(row)]);
        const auto said = values_of<std::int32_t>(batch.tensors[1]);
        EXPECT_EQ(said[0], own);
        EXPECT_EQ(said[1], longest[t]);
        return own;
      };
      EXPECT_EQ(both(whole), longest[t]);
      EXPECT_EQ(std::max(both(first), both(second)), longest[t]);
    }
  }
}

TEST(EqualWorkTest, StreamedRowsAreDealtAlike) {
  TempDir dir;
  const auto path = dir.path() / "a.csv";
  {
    std::ofstream file(path);
    for (int r = 0; r < 400; ++r) {
      for (int i = 0; i < 1 + r * 7 % 23; ++i) file << (i == 0 ? "" : "|") << "abcd"[(r + i) % 4];
      file << "," << r << "\n";
    }
  }
  const std::vector<ColumnSpec> columns{
      {.name = "tags", .kind = ColumnKind::Categorical, .vocabulary = {"a", "b", "c", "d"}, .ragged = true},
      {.name = "x", .kind = ColumnKind::Numeric}};
  const auto source = [&] {
    BlockIndexOptions index;
    index.directory = dir.path();
    index.block_bytes = 500;
    index.layout = RecordLayout::Fields;
    return std::shared_ptr<BlockSource>(make_row_blocks(
        block_indexes({path}, [&](const auto&) { return index; }),
        [&](const ReadOptions& read) { return stream_csv({}, {.columns = columns, .read = read}); }, 0));
  };
  BatchOptions options{.global_batch = 20, .seed = 2};
  const StreamedRowsOptions stream{.window_rows = 100, .shards = 4};
  const std::vector<std::string> names{"dense", "sparse/tags", "sparse/tags/offsets"};
  Batcher whole(std::make_shared<StreamedRows>(source(), stream, options), names, options);
  BatchOptions dealt = options;
  dealt.world = 2;
  dealt.equal_work = true;
  Batcher first(std::make_shared<StreamedRows>(source(), stream, options), names, dealt);
  dealt.rank = 1;
  Batcher second(std::make_shared<StreamedRows>(source(), stream, options), names, dealt);
  for (std::uint64_t t = 0; t < 40; ++t) {
    const Batch a = first.make(t), b = second.make(t);
    auto together = values_of<float>(a.tensors[0]);
    const auto others = values_of<float>(b.tensors[0]);
    EXPECT_EQ(together.size(), 10U);
    together.insert(together.end(), others.begin(), others.end());
    EXPECT_THAT(together, testing::UnorderedElementsAreArray(values_of<float>(whole.make(t).tensors[0])));
    EXPECT_LE(
        std::abs(values_of<std::int32_t>(a.tensors[2]).back() - values_of<std::int32_t>(b.tensors[2]).back()),
        10);
  }
}

}  // namespace
}  // namespace braid
