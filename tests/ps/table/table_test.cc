#include <numeric>

#include "ps/table/dense_table.h"
#include "ps/table/sparse_table.h"
#include "tests/ps/table/table_conformance.h"

namespace braid::ps {
namespace {

class DenseAdapter {
 public:
  static constexpr std::int64_t kElements = kDenseBlockElements + 1003;

  explicit DenseAdapter(const OptimizerSpec& optimizer)
      : optimizer_(optimizer), table_(kElements, optimizer) {
    const auto values = initial();
    for (std::int64_t block = 0; block < table_.blocks(); ++block) table_.assign(block, values.data());
  }
  std::vector<float> initial() const { return random_floats("initial", 0, kElements); }
  void apply(const UpdateParams& params, const std::vector<std::vector<float>>& gradients) {
    std::vector<const float*> pointers;
    for (const auto& g : gradients) pointers.push_back(g.data());
    for (std::int64_t block = table_.blocks(); block-- > 0;)
      table_.apply(block, prepare_update(optimizer_, params), pointers);
  }
  std::vector<float> values() {
    return gather([&](std::int64_t block) { return table_.read(block); });
  }
  std::vector<float> slot(int k) {
    return gather([&](std::int64_t block) { return table_.read_slot(block, k); });
  }

 private:
  template <class Read>
  std::vector<float> gather(Read read) {
    std::vector<float> out;
    for (std::int64_t block = 0; block < table_.blocks(); ++block) {
      const auto hold = read(block);
      out.insert(out.end(), hold.values().begin(), hold.values().end());
    }
    return out;
  }
  OptimizerSpec optimizer_;
  DenseTable table_;
};

class SparseAdapter {
 public:
  static constexpr std::int64_t kRows = 3000;
  static constexpr std::int64_t kDim = 7;

  explicit SparseAdapter(const OptimizerSpec& optimizer) : optimizer_(optimizer), table_(spec(), optimizer) {
    for (std::int64_t key = 0; key < kRows; ++key) keys_.push_back(key);
    positions_.resize(kRows);
    std::iota(positions_.begin(), positions_.end(), 0U);
    values();
  }
  static SparseTableSpec spec() { return {"e", kDim, {InitKind::Normal, 0.5F, 2.0F}, make_rng_key(7, "e")}; }
  std::vector<float> initial() const {
    std::vector<float> out(kRows * kDim);
    fill_initial(spec().init, spec().key, 0, out);
    return out;
  }
  void apply(const UpdateParams& params, const std::vector<std::vector<float>>& gradients) {
    std::vector<SparseGradient> parts;
    for (const auto& g : gradients) parts.push_back({keys_, positions_, g.data()});
    table_.apply(prepare_update(optimizer_, params), params.step, parts);
  }
  std::vector<float> values() {
    std::vector<float> out(kRows * kDim);
    table_.pull(keys_, positions_, true, 0, out.data());
    return out;
  }
  std::vector<float> slot(int k) {
    SparseRows rows;
    table_.append_to(rows);
    return rows.slots[static_cast<std::size_t>(k)];
  }

 private:
  OptimizerSpec optimizer_;
  SparseTable table_;
  std::vector<std::int64_t> keys_;
  std::vector<std::uint32_t> positions_;
};

using Adapters = testing::Types<DenseAdapter, SparseAdapter>;
INSTANTIATE_TYPED_TEST_SUITE_P(Tables, TableConformance, Adapters);

TEST(DenseTableTest, AReaderKeepsWhatItReadWhileUpdatesGoOn) {
  OptimizerSpec sgd;
  DenseTable table(1000, sgd);
  const auto before = table.read(0);
  const auto gradient = random_floats("g", 0, 1000);
  const float* pointer = gradient.data();
  table.apply(0, prepare_update(sgd, {1.0F, 1.0F, 0}), {&pointer, 1});
  EXPECT_EQ(before.values()[5], 0.0F);
  EXPECT_EQ(table.read(0).values()[5], -gradient[5]);
}

TEST(DenseTableTest, UpdatesInPlaceWhenNobodyReads) {
  OptimizerSpec sgd;
  DenseTable table(1000, sgd);
  const float* before = table.read(0).values().data();
  const auto gradient = random_floats("g", 0, 1000);
  const float* pointer = gradient.data();
  table.apply(0, prepare_update(sgd, {1.0F, 1.0F, 0}), {&pointer, 1});
  EXPECT_EQ(table.read(0).values().data(), before);
}

class SparseTableTest : public testing::Test {
 protected:
  SparseTableTest() : table_(SparseAdapter::spec(), OptimizerSpec()) {}

  std::vector<float> pull(const std::vector<std::int64_t>& keys, bool insert) {
    std::vector<float> out(keys.size() * SparseAdapter::kDim);
    table_.pull(keys, all(keys.size()), insert, 3, out.data());
    return out;
  }
  static std::vector<std::uint32_t> all(std::size_t count) {
    std::vector<std::uint32_t> positions(count);
    std::iota(positions.begin(), positions.end(), 0U);
    return positions;
  }
  const std::vector<std::uint32_t> all_one_{0};
  SparseTable table_;
};

TEST_F(SparseTableTest, InitialValuesAreThoseOfTheWholeTableForAnyInt64) {
  const std::vector<std::int64_t> keys{5, -1, 0, INT64_MAX, INT64_MIN};
  const auto rows = pull(keys, true);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    std::vector<float> expected(SparseAdapter::kDim);
    fill_initial(SparseAdapter::spec().init, SparseAdapter::spec().key,
                 static_cast<std::uint64_t>(keys[i]) * SparseAdapter::kDim, expected);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(),
                           rows.begin() + static_cast<std::ptrdiff_t>(i) * SparseAdapter::kDim));
  }
}

TEST_F(SparseTableTest, EvaluationNeverInserts) {
  const auto evaluated = pull({1, 2, 3}, false);
  EXPECT_EQ(table_.rows(), 0);
  EXPECT_EQ(pull({1, 2, 3}, true), evaluated);
  EXPECT_EQ(table_.rows(), 3);
}

TEST_F(SparseTableTest, ARowWiseOptimizerHasANumberARow) {
  constexpr auto kDim = static_cast<std::size_t>(SparseAdapter::kDim);
  const OptimizerSpec spec{.kind = OptimizerKind::Adagrad, .initial_accumulator = 0.25F, .row_wise = true};
  SparseTable table(SparseAdapter::spec(), spec);
  const std::vector<std::int64_t> keys{4, 9, 2};
  std::vector<float> expected(keys.size() * kDim), got(keys.size() * (kDim + 1));
  table.pull(keys, all(keys.size()), true, 0, expected.data());
  EXPECT_EQ(table.floats(true), kDim + 1);
  std::vector<float> accumulators(keys.size(), 0.25F);
  for (std::uint64_t step = 0; step < 3; ++step) {
    const PreparedUpdate update = prepare_update(spec, {0.1F, 1.0F, step});
    const auto gradients = random_floats("g", step, keys.size() * kDim);
    const std::vector<std::uint32_t> positions = all(keys.size());
    const std::vector<SparseGradient> parts{{keys, positions, gradients.data()}};
    table.apply(update, step, parts);
    for (std::size_t k = 0; k < keys.size(); ++k)
      apply_row_update(update, std::span(expected).subspan(k * kDim, kDim),
                       std::span(gradients).subspan(k * kDim, kDim), accumulators[k]);
  }
  const auto expect_rows = [&](SparseTable& of) {
    of.pull(keys, all(keys.size()), false, 3, got.data(), true);
    for (std::size_t k = 0; k < keys.size(); ++k) {
      for (std::size_t c = 0; c < kDim; ++c)
        EXPECT_EQ(got[k * (kDim + 1) + c], expected[k * kDim + c]) << "row " << k;
      EXPECT_EQ(got[k * (kDim + 1) + kDim], accumulators[k]) << "row " << k;
    }
  };
  expect_rows(table);
  SparseRows rows;
  table.append_to(rows);
  EXPECT_EQ(rows.slots, (std::vector<std::vector<float>>{accumulators}));
  SparseTable restored(SparseAdapter::spec(), spec);
  for (std::size_t i = 0; i < rows.keys.size(); ++i) restored.restore_row(rows, i);
  expect_rows(restored);
  rows.slots.clear();  // they begin anew
  SparseTable fresh(SparseAdapter::spec(), spec);
  for (std::size_t i = 0; i < rows.keys.size(); ++i) fresh.restore_row(rows, i);
  std::ranges::fill(accumulators, 0.25F);
  expect_rows(fresh);
}

TEST_F(SparseTableTest, GradientsOfAKeyAreAddedInOrderInEveryUpdate) {
  constexpr auto kDim = static_cast<std::size_t>(SparseAdapter::kDim);
  const std::vector<std::int64_t> all_keys{4, 9, 2, 7};
  ReferenceVariable reference(OptimizerSpec(), pull(all_keys, true));
  // The keys of three workers; in the second update they are met in another order.
  const std::vector<std::vector<std::vector<std::int64_t>>> updates{{{4, 9}, {2, 4, 9}, {4}},
                                                                    {{2}, {9, 7, 2}, {2, 7}}};
  for (std::uint64_t step = 0; step < updates.size(); ++step) {
    const UpdateParams params{0.1F, 1.0F, step};
    std::vector<SparseGradient> gradients;
    std::vector<std::vector<float>> rows;
    std::vector<std::vector<std::uint32_t>> positions;
    for (const auto& keys : updates[step]) {
      rows.push_back(random_floats("g" + std::to_string(rows.size()), step, keys.size() * kDim));
      positions.push_back(all(keys.size()));
    }
    for (std::size_t w = 0; w < rows.size(); ++w)
      gradients.push_back({updates[step][w], positions[w], rows[w].data()});
    table_.apply(prepare_update(OptimizerSpec(), params), step, gradients);

    for (std::size_t k = 0; k < all_keys.size(); ++k) {
      std::vector<std::vector<float>> of_key;
      for (std::size_t w = 0; w < rows.size(); ++w)
        for (std::size_t p = 0; p < updates[step][w].size(); ++p)
          if (updates[step][w][p] == all_keys[k])
            of_key.emplace_back(rows[w].begin() + static_cast<std::ptrdiff_t>(p * kDim),
                                rows[w].begin() + static_cast<std::ptrdiff_t>((p + 1) * kDim));
      if (!of_key.empty()) reference.apply(params, of_key, k * kDim);
    }
    EXPECT_EQ(pull(all_keys, true), reference.values()) << "update " << step;
  }
}

TEST_F(SparseTableTest, KnowsTheStepOfLastUseOfEveryRow) {
  constexpr std::uint64_t kLate = (std::uint64_t{5} << 32) + 2;  // its low half is below that of kEarlier
  constexpr std::uint64_t kEarlier = kLate - 10;
  std::vector<float> out(SparseAdapter::kDim * 3);
  const auto positions = all(3);
  const std::vector<std::int64_t> first{1, 2, 3}, pushed{2}, evaluated{1};
  table_.pull(first, positions, true, kEarlier, out.data());
  const SparseGradient gradient{pushed, all_one_, out.data()};
  table_.apply(prepare_update(OptimizerSpec(), {0.1F, 1.0F, kLate}), kLate, {&gradient, 1});
  table_.pull(evaluated, all_one_, false, kLate + 5, out.data());
  SparseRows rows;
  table_.append_to(rows);
  EXPECT_EQ(rows.last_use, (std::vector<std::uint64_t>{kEarlier, kLate, kEarlier}));
}

TEST_F(SparseTableTest, RowsSurviveTheWayThroughACheckpoint) {
  pull({10, 20, 30}, true);
  SparseRows rows;
  table_.append_to(rows);
  ASSERT_EQ(rows.keys, (std::vector<std::int64_t>{10, 20, 30}));
  EXPECT_EQ(rows.last_use, (std::vector<std::uint64_t>{3, 3, 3}));
  OptimizerSpec adam;
  adam.kind = OptimizerKind::Adagrad;
  SparseTable other(SparseAdapter::spec(), adam);
  for (std::size_t i = 0; i < rows.keys.size(); ++i) other.restore_row(rows, i);
  SparseRows back;
  other.append_to(back);
  EXPECT_EQ(back.values, rows.values);
  EXPECT_EQ(back.slots[0], std::vector<float>(21, adam.initial_accumulator))
      << "a slot that the source lacks is initialised";
}

}  // namespace
}  // namespace braid::ps
