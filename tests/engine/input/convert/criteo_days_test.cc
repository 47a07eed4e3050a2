// Criteo's raw days as rows of MLPerf's DLRM-v2: numbers by first appearance, with any memory; bags as NumPy
// draws them; calls that are interrupted and go on.
#include "engine/input/convert/criteo_days.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "base/error.h"
#include "base/files.h"
#include "engine/input/convert/bag_tables.h"
#include "engine/input/convert/id_numbers.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Path = std::filesystem::path;

template <class T>
void write_items(const Path& file, const std::vector<T>& items) {
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(items.data()),
             static_cast<std::streamsize>(items.size() * sizeof(T)));
}
template <class T>
std::vector<T> read_all(const Path& file) {
  const std::string bytes = read_file(file);
  std::vector<T> items(bytes.size() / sizeof(T));
  if (!items.empty()) std::memcpy(items.data(), bytes.data(), items.size() * sizeof(T));
  return items;
}

TEST(NumberColumnTest, NumbersValuesByFirstAppearanceWithAnyMemory) {
  const TempDir dir;
  std::mt19937 random(1);
  std::map<std::uint32_t, std::int32_t> numbers;
  NumberColumnOptions options;
  options.scratch = dir.path() / "scratch";
  options.rows = 5000;
  std::vector<std::vector<std::int32_t>> expected;
  for (int f = 0; f < 3; ++f) {
    std::vector<std::uint32_t> values(f == 1 ? 0 : 40000);
    std::vector<std::int32_t> ids;
    for (std::uint32_t& value : values) {
      value = random() % 4 == 0 ? random() % 50 : random();
      const auto next = static_cast<std::int32_t>(2 + numbers.size());
      ids.push_back(numbers.try_emplace(value, next).first->second % 5000);
    }
    options.values.push_back(dir.path() / ("values" + std::to_string(f)));
    options.ids.push_back(dir.path() / ("ids" + std::to_string(f)));
    write_items(options.values.back(), values);
    expected.push_back(std::move(ids));
  }
  std::vector<int> parts;
  for (const std::uint64_t memory :
       {std::uint64_t{64} << 20, std::uint64_t{800} << 10, std::uint64_t{100} << 10}) {
    options.memory_bytes = memory;
    const NumberedColumn column = number_column(options);
    EXPECT_EQ(column.distinct, numbers.size());
    parts.push_back(column.parts);
    for (std::size_t f = 0; f < 3; ++f)
      EXPECT_EQ(read_all<std::int32_t>(options.ids[f]), expected[f]) << memory << ", file " << f;
  }
  EXPECT_EQ(parts[0], 1);
  EXPECT_GT(parts[1], 1);
  EXPECT_GT(parts[2], parts[1]);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 6) << "nothing is left over";
}

/// NumPy 2.2: np.random.seed(0), then np.random.randint(0, rows, (rows, width)) one after the other.
TEST(BagTablesTest, AreThoseOfNumPy) {
  const TempDir dir;
  const std::int64_t rows[] = {1000, 3, 1, 4, 39060}, ids[] = {3, 1, 3, 4, 2};
  std::vector<Path> files = make_bag_tables(dir.path(), rows, ids, nullptr);
  const auto ends = [&](std::size_t c) {
    const auto all = read_all<std::int32_t>(files[c]);
    std::vector<std::int32_t> some(all.begin(), all.begin() + std::min<std::ptrdiff_t>(6, std::ssize(all)));
    some.insert(some.end(), all.end() - std::min<std::ptrdiff_t>(2, std::ssize(all)), all.end());
    return some;
  };
  EXPECT_THAT(ends(0), ElementsAre(684, 559, 629, 192, 835, 763, 51, 473));
  EXPECT_THAT(ends(1), ElementsAre());
  EXPECT_THAT(ends(2), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(ends(3), ElementsAre(1, 0, 0, 3, 2, 0, 0, 0));
  EXPECT_THAT(ends(4), ElementsAre(10400, 13553, 337, 30280, 17124, 30111, 24850, 22679));
  const auto last = read_all<std::int32_t>(files[4]);
  for (const std::size_t gone : {4U, 3U}) std::filesystem::remove(files[gone]);
  make_bag_tables(dir.path(), rows, ids, nullptr);
  EXPECT_EQ(read_all<std::int32_t>(files[4]), last) << "it goes on behind the columns that are there";
}

class CriteoDaysTest : public testing::Test {
 protected:
  static constexpr std::int64_t kRows = 50;

  CriteoDaysTest() {
    options_.out = dir_.path() / "out";
    options_.work = dir_.path() / "work";
    options_.max_rows = kRows;
    options_.progress = [this](const std::string& line) {
      if (--lines_left_ == 0) throw Unavailable("interrupted behind: " + line);
    };
    std::mt19937 random(3);
    for (const int rows : {40, 25, 31}) {
      const std::string name =
          "day_" + std::to_string(options_.days.size()) + (options_.days.size() == 1 ? ".gz" : "");
      std::string text;
      for (int r = 0; r < rows; ++r) {
        text += std::to_string(random() % 2);
        for (int i = 0; i < 13; ++i)
          text += random() % 5 == 0 ? "\t" : "\t" + std::to_string(static_cast<int>(random() % 100) - 2);
        for (int c = 0; c < 26; ++c)
          text += random() % 7 == 0 ? "\t" : fmt::format("\t{:08x}", (random() % 90) * 0x01234567U);
        text += "\n";
      }
      texts_.push_back(text);
      options_.days.push_back(dir_.path() / name);
      write(options_.days.back(), text);
    }
  }

  static void write(const Path& file, const std::string& text) {
    if (file.extension() != ".gz") {
      std::ofstream(file, std::ios::binary) << text;
      return;
    }
    gzFile out = gzopen(file.c_str(), "wb");
    gzwrite(out, text.data(), static_cast<unsigned>(text.size()));
    gzclose(out);
  }

  /// What the reference makes of the lines, in the plainest way.
  std::vector<MlperfRow> expected() const {
    std::vector<std::vector<std::vector<std::int32_t>>> bags;
    std::mt19937 engine(0);
    for (std::size_t c = 0; c < 26; ++c) {
      const std::int64_t rows = mlperf_rows(static_cast<int>(c), kRows);
      auto& table = bags.emplace_back(static_cast<std::size_t>(rows));
      for (auto& row : table)
        for (std::int64_t k = 1; k < kMlperfHots[c]; ++k)
          row.push_back(static_cast<std::int32_t>(numpy_randint(engine, static_cast<std::uint32_t>(rows))));
    }
    std::vector<std::map<std::uint32_t, std::int32_t>> numbers(26);
    std::vector<MlperfRow> rows;
    for (const std::string& text : texts_) {
      std::istringstream lines(text);
      for (std::string line; std::getline(lines, line);) {
        std::vector<std::string> fields(1);
        for (const char c : line) {
          if (c == '\t')
            fields.emplace_back();
          else
            fields.back() += c;
        }
        MlperfRow& row = rows.emplace_back();
        row.label = std::stoi(fields[0]);
        for (std::size_t i = 0; i < 13; ++i)
          row.dense[i] =
              static_cast<float>(std::log((fields[1 + i].empty() ? 0 : std::stoi(fields[1 + i])) + 3.0));
        std::int32_t* to = row.ids;
        for (std::size_t c = 0; c < 26; ++c) {
          const std::string& hex = fields[14 + c];
          const auto value = static_cast<std::uint32_t>(hex.empty() ? 0 : std::stoul(hex, nullptr, 16));
          const auto next = static_cast<std::int32_t>(2 + numbers[c].size());
          const auto id = static_cast<std::int32_t>(numbers[c].try_emplace(value, next).first->second %
                                                    mlperf_rows(static_cast<int>(c), kRows));
          *to++ = id;
          for (const std::int32_t more : bags[c][static_cast<std::size_t>(id)]) *to++ = more;
        }
      }
    }
    return rows;
  }
  std::vector<MlperfRow> converted() const {
    std::vector<MlperfRow> rows;
    for (const char* name : {"day_0.bin", "day_1.bin", "val_data.bin", "test_data.bin"})
      for (const MlperfRow& row : read_all<MlperfRow>(options_.out / name)) rows.push_back(row);
    return rows;
  }
  static void expect_equal(const std::vector<MlperfRow>& got, const std::vector<MlperfRow>& expected) {
    ASSERT_EQ(got.size(), expected.size());
    EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(MlperfRow)), 0);
  }

  TempDir dir_;
  CriteoDaysOptions options_;
  std::vector<std::string> texts_;
  int lines_left_ = -1;
};

TEST_F(CriteoDaysTest, BecomeTheRowsOfTheReference) {
  const CriteoDaysResult made = convert_criteo_days(options_);
  EXPECT_EQ(made.train_rows, 65);
  EXPECT_EQ(made.validation_rows, 16) << "the larger half of the last day";
  EXPECT_EQ(made.test_rows, 15);
  EXPECT_EQ(made.distinct.size(), 26U);
  expect_equal(converted(), expected());
  EXPECT_FALSE(std::filesystem::exists(options_.work));
  const auto stream = stream_mlperf_dlrm({options_.out / "day_0.bin"}, {.max_rows = kRows});
  EXPECT_EQ(stream->next(1000)->rows, 40) << "which a job reads";
}

TEST_F(CriteoDaysTest, GoOnWhereTheyWereInterrupted) {
  for (const int line : {1, 3, 4, 20, 29, 30, 55, 56, 57, 58, 1000}) {
    lines_left_ = line;
    std::filesystem::remove_all(options_.out);
    std::filesystem::remove_all(options_.work);
    try {
      convert_criteo_days(options_);
      EXPECT_EQ(line, 1000);
      continue;
    } catch (const Unavailable&) {
    }
    int lines = 0;
    CriteoDaysOptions again = options_;
    again.progress = [&](const std::string& text) { lines += text.starts_with("bags") ? 0 : 1; };
    convert_criteo_days(again);
    EXPECT_LE(lines, 3 + 26 + 4 - std::min(line, 29)) << "what is there is not made again";
    expect_equal(converted(), expected());
  }
}

TEST_F(CriteoDaysTest, WorkOfOtherDaysIsRefused) {
  lines_left_ = 5;
  EXPECT_THROW(convert_criteo_days(options_), Unavailable);
  lines_left_ = -1;
  options_.days.pop_back();
  EXPECT_THAT(message_of<InvalidArgument>([&] { convert_criteo_days(options_); }),
              HasSubstr("work of other days or settings"));
}

TEST_F(CriteoDaysTest, BadLinesAreToldWithTheirPlace) {
  const auto refusal = [&](const std::string& line) {
    write(options_.days[0], texts_[0] + line + "\n");
    std::filesystem::remove_all(options_.work);
    return message_of<DataLoss>([&] { convert_criteo_days(options_); });
  };
  const std::string first = texts_[0].substr(0, texts_[0].find('\n'));
  EXPECT_THAT(refusal("1\t2\t3"), AllOf(HasSubstr("day_0' line 41"), HasSubstr("expected 40 fields, got 3")));
  EXPECT_THAT(refusal("2" + first.substr(1)), HasSubstr("label '2' is not 0 or 1"));
  EXPECT_THAT(refusal(first + "x"), HasSubstr("C26"));
  std::string negative(first);
  negative.replace(2, negative.find('\t', 2) - 2, "-3");
  EXPECT_THAT(refusal(negative), HasSubstr("I1 '-3' is no integer of -2 or more"));
  options_.max_bad_records = 1;
  std::filesystem::remove_all(options_.work);
  EXPECT_EQ(convert_criteo_days(options_).bad_records, 1);
  expect_equal(converted(), expected());
  options_.days.push_back(dir_.path() / "none");
  EXPECT_THAT(message_of<InvalidArgument>([&] { convert_criteo_days(options_); }), HasSubstr("none"));
}

}  // namespace
}  // namespace braid
