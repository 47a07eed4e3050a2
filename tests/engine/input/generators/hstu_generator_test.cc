// Users' histories: the same for a seed, with the statistics that are said, and a test set that is later.
#include "engine/input/generators/hstu_generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/files.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

using testing::HasSubstr;

struct Sample {
  std::int64_t uid = 0, day = 0, label = 0;
  std::vector<std::int64_t> items, artists, actions;
  std::vector<float> ages;
};

class HstuGeneratorTest : public testing::Test {
 protected:
  std::filesystem::path made(bool evaluation, std::uint64_t seed = 1, std::int64_t users = 400) {
    const auto path = dir_.path() / ("rows" + std::to_string(files_++) + ".tfrecord");
    result_ = generate_hstu(path,
                            {.users = users,
                             .seed = seed,
                             .history = 60,
                             .items = 1000,
                             .artists = 100,
                             .albums = 200,
                             .format = FileFormat::TfRecord},
                            evaluation);
    return path;
  }
  static std::vector<Sample> read(const std::filesystem::path& path) {
    const auto file = RecordFile::open(path, {.format = FileFormat::TfRecord});
    std::vector<Sample> samples;
    while (file->next()) {
      const FeatureSet& record = file->record();
      const auto ints = [&](const char* name) {
        const auto values = record.ints(*record.find(name));
        return std::vector<std::int64_t>(values.begin(), values.end());
      };
      const auto ages = record.floats(*record.find("history_age"));
      samples.push_back({ints("uid")[0],
                         ints("day")[0],
                         ints("label")[0],
                         ints("history_item"),
                         ints("history_artist"),
                         ints("history_action"),
                         {ages.begin(), ages.end()}});
      EXPECT_EQ(ints("history_album").size(), samples.back().items.size());
    }
    return samples;
  }

  TempDir dir_;
  HstuGeneratorResult result_;
  int files_ = 0;
};

TEST_F(HstuGeneratorTest, FollowsFromItsSeed) {
  const std::string first = read_file(made(false));
  EXPECT_EQ(read_file(made(false)), first);
  EXPECT_NE(read_file(made(false, 2)), first);
}

TEST_F(HstuGeneratorTest, HistoriesAreListsOfOneLengthInTheOrderOfTime) {
  const std::vector<Sample> samples = read(made(false));
  ASSERT_GT(samples.size(), 300U);
  EXPECT_EQ(result_.samples, std::ssize(samples));
  for (const Sample& s : samples) {
    ASSERT_GE(s.items.size(), 20U);
    ASSERT_LE(s.items.size(), 60U);
    ASSERT_EQ(s.artists.size(), s.items.size());
    ASSERT_EQ(s.actions.size(), s.items.size());
    ASSERT_EQ(s.ages.size(), s.items.size());
    EXPECT_TRUE(std::ranges::is_sorted(s.ages, std::greater<>()));
    EXPECT_GE(s.ages.back(), 0);
    for (const std::int64_t action : {1, 2, 4}) EXPECT_LE(std::ranges::count(s.actions, action), 20);
  }
}

TEST_F(HstuGeneratorTest, SharesAreThePublishedOnes) {
  const std::vector<Sample> samples = read(made(false));
  double listened = 0, liked = 0, tokens = 0;
  for (const Sample& s : samples) {
    listened += static_cast<double>(s.label);
    liked += static_cast<double>(std::ranges::count(s.actions, 2));
    tokens += static_cast<double>(s.actions.size());
  }
  EXPECT_NEAR(listened / static_cast<double>(samples.size()), 0.63, 0.06);
  // Of the last 294 events (20,000 / 4,086 * 60) 1.9 % are liked: 5.6, among about 20 + 20 others.
  EXPECT_NEAR(liked / static_cast<double>(samples.size()), 4, 2);
  EXPECT_GT(result_.auc_ceiling, 0.65);
  EXPECT_EQ(result_.tokens, static_cast<std::int64_t>(tokens));
}

TEST_F(HstuGeneratorTest, TheTestSetIsTheLastDayAlone) {
  const std::vector<Sample> train = read(made(false)), test = read(made(true));
  EXPECT_TRUE(std::ranges::is_sorted(train, {}, &Sample::day)) << "windows in the order of time";
  EXPECT_LT(train.back().day, 299);
  for (const Sample& s : test) EXPECT_EQ(s.day, 299);
}

TEST_F(HstuGeneratorTest, RefusesWhatGivesNoSamples) {
  const auto refused = [&](HstuGeneratorOptions options) {
    return message_of<InvalidArgument>([&] { generate_hstu(dir_.path() / "none", options, false); });
  };
  EXPECT_THAT(refused({.users = 0}), HasSubstr("users and samples of a user must be positive"));
  EXPECT_THAT(refused({.users = 1, .history = 4}), HasSubstr("multiple of 3, got 4"));
  EXPECT_THAT(refused({.users = 1, .history = 27000}), HasSubstr("none of 1 users has 27000 events"));
}

}  // namespace
}  // namespace braid
