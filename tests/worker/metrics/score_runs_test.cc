// Runs of scores that ranks exchange: the bits that one process finds of all rows, whatever rank has which.
#include "worker/metrics/score_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <thread>

#include "base/error.h"
#include "comm/communicator.h"
#include "comm/local/local_communicator.h"
#include "tests/support/expect_error.h"
#include "worker/metrics/metrics.h"
#include "worker/metrics/ranking.h"

namespace braid::worker {
namespace {

using testing::HasSubstr;

const WaitContext kSoon = WaitContext::with_timeout(std::chrono::minutes(1));

/// Each rank on a thread of its own.
void on_ranks(int ranks, const std::function<void(int, comm::Communicator&)>& work) {
  auto group = comm::make_local_group(ranks);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] { work(rank, *group[static_cast<std::size_t>(rank)]); });
}

struct Found {
  double auc = 0, precision = 0;
  friend bool operator==(const Found& a, const Found& b) {  // bits, also of NaN
    return std::bit_cast<std::uint64_t>(a.auc) == std::bit_cast<std::uint64_t>(b.auc) &&
           std::bit_cast<std::uint64_t>(a.precision) == std::bit_cast<std::uint64_t>(b.precision);
  }
};

Found by_order(const RankedRows& rows) {
  const auto order = ranked_order(rows, false);
  return {auc(rows, order), average_precision(rows, order)};
}
Found by_runs(const RankedRows& rows) {
  const RunPart part = whole_part(score_runs(rows.scores, rows.labels));
  return {auc(part, nullptr, kSoon), average_precision(part, nullptr, kSoon)};
}
/// The rows of each rank; all ranks must find the same.
Found by_ranks(const std::vector<RankedRows>& parts) {
  std::vector<Found> found(parts.size());
  on_ranks(static_cast<int>(parts.size()), [&](int rank, comm::Communicator& communicator) {
    const RankedRows& own = parts[static_cast<std::size_t>(rank)];
    const RunPart part = exchange_runs(score_runs(own.scores, own.labels), communicator, kSoon);
    found[static_cast<std::size_t>(rank)] = {auc(part, &communicator, kSoon),
                                             average_precision(part, &communicator, kSoon)};
  });
  for (const Found& each : found) EXPECT_EQ(each, found[0]);
  return found[0];
}

/// Each row to any rank; the last rank has none with `idle`.
std::vector<RankedRows> split(const RankedRows& rows, int ranks, bool idle, std::mt19937& random) {
  std::vector<RankedRows> parts(static_cast<std::size_t>(ranks));
  const auto takers = static_cast<std::size_t>(idle && ranks > 1 ? ranks - 1 : ranks);
  for (std::size_t r = 0; r < rows.scores.size(); ++r) {
    RankedRows& to = parts[random() % takers];
    to.scores.push_back(rows.scores[r]);
    to.labels.push_back(rows.labels[r]);
  }
  return parts;
}

TEST(ScoreRunsTest, KeysAreInTheOrderOfScores) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> scores{infinity, 3e38F, 2, 1.5F, 1e-30F, 1e-45F, 0, -1e-45F, -1, -2, -infinity};
  for (std::size_t s = 0; s + 1 < scores.size(); ++s)
    EXPECT_LT(score_key(scores[s]), score_key(scores[s + 1])) << scores[s];
  EXPECT_EQ(score_key(0.0F), score_key(-0.0F));
}

TEST(ScoreRunsTest, RowsOfOneScoreAreOneRun) {
  const std::vector<float> scores{1, 2, 1, 0, -0.0F, 1};
  const std::vector<std::uint8_t> labels{1, 0, 0, 1, 1, 1};
  EXPECT_THAT(score_runs(scores, labels),
              testing::ElementsAre(ScoreRun{score_key(2), 0, 1}, ScoreRun{score_key(1), 2, 1},
                                   ScoreRun{score_key(0), 2, 0}));
  EXPECT_THAT(score_runs({}, {}), testing::IsEmpty());
}

TEST(ScoreRunsTest, RandomSplitsGiveTheBitsOfOneProcess) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 100; ++trial) {
    RankedRows rows;
    const std::size_t count = random() % (trial % 10 == 0 ? 60000 : 400);
    const int kind = trial % 5;  // few scores, all alike, narrow, wide, of one class
    for (std::size_t r = 0; r < count; ++r) {
      const float u = std::uniform_real_distribution<float>(-4, 4)(random);
      rows.scores.push_back(kind == 0   ? std::round(u)
                            : kind == 1 ? 0.25F
                            : kind == 2 ? 1 + u * 1e-6F
                                        : u * std::exp(u));
      rows.labels.push_back(kind == 4 ? 0 : random() % 3 == 0 ? 1 : 0);
    }
    const int ranks = 1 + static_cast<int>(random() % 6);
    const Found expected = by_order(rows);
    EXPECT_EQ(by_runs(rows), expected) << trial;
    EXPECT_EQ(by_ranks(split(rows, ranks, trial % 3 == 0, random)), expected)
        << trial << ": " << count << " rows on " << ranks << " ranks";
  }
}

TEST(ScoreRunsTest, PartsOfRanksAreAboutAsLarge) {
  std::mt19937 random(2);
  std::vector<RankedRows> parts(4);
  for (RankedRows& part : parts)
    for (int r = 0; r < 50000; ++r) {
      part.scores.push_back(std::normal_distribution<float>(-3, 1)(random));
      part.labels.push_back(random() % 20 == 0 ? 1 : 0);
    }
  std::vector<std::size_t> sizes(4);
  on_ranks(4, [&](int rank, comm::Communicator& communicator) {
    const RankedRows& own = parts[static_cast<std::size_t>(rank)];
    sizes[static_cast<std::size_t>(rank)] =
        exchange_runs(score_runs(own.scores, own.labels), communicator, kSoon).runs.size();
  });
  for (const std::size_t size : sizes) {
    EXPECT_GT(size, 40000U);
    EXPECT_LT(size, 60000U);
  }
}

TEST(ScoreRunsTest, CountsBeyondADoubleAreExact) {
  RunPart part = whole_part({{1, 4000000000U, 4000000001U}, {2, 4000000003U, 4000000005U}});
  EXPECT_GT(auc(part, nullptr, kSoon), 0.5);
  EXPECT_LT(auc(part, nullptr, kSoon), 1);
}

class SharedMetricsTest : public testing::Test {
 protected:
  static constexpr std::size_t kBatch = 37;

  /// `batches` of scores, the last one smaller.
  void make(int batches) {
    std::mt19937 random(batches);
    const std::size_t rows = batches == 0 ? 0 : static_cast<std::size_t>(batches) * kBatch - 5;
    for (std::size_t r = 0; r < rows; ++r) {
      scores_.push_back(std::round(std::normal_distribution<float>(0, 30)(random)) / 16);
      labels_.push_back(random() % 3 == 0 ? 1 : 0);
    }
  }
  MetricBatch batch(std::size_t b) const {
    const std::size_t begin = b * kBatch, rows = std::min(kBatch, scores_.size() - begin);
    return {.predicted = std::span(scores_).subspan(begin, rows),
            .labels = std::span(labels_).subspan(begin, rows),
            .number = static_cast<std::int64_t>(b)};
  }
  MetricSet set_of(int rank, int ranks) const {
    MetricSet set(Prediction::Probability, metrics_);
    for (std::size_t b = static_cast<std::size_t>(rank); b * kBatch < scores_.size();
         b += static_cast<std::size_t>(ranks))
      set.add(batch(b));
    return set;
  }

  std::vector<Metric> metrics_{{MetricKind::Auc},
                               {MetricKind::PrAuc},
                               {MetricKind::LogLoss},
                               {MetricKind::Accuracy},
                               {MetricKind::Calibration}};
  std::vector<float> scores_, labels_;
};

TEST_F(SharedMetricsTest, HaveTheBitsOfOneProcess) {
  for (const int batches : {0, 1, 2, 3, 7, 40}) {
    scores_.clear();
    labels_.clear();
    make(batches);
    const MetricSet whole = set_of(0, 1);
    for (const int ranks : {1, 2, 3, 5})
      on_ranks(ranks, [&](int rank, comm::Communicator& communicator) {
        MetricSet set = set_of(rank, ranks);
        set.share(communicator, kSoon);
        EXPECT_EQ(set.rows(), whole.rows());
        for (std::size_t m = 0; m < metrics_.size(); ++m)
          EXPECT_EQ(std::bit_cast<std::uint64_t>(set.values()[m].value),
                    std::bit_cast<std::uint64_t>(whole.values()[m].value))
              << metrics_[m].name() << " of " << batches << " batches on " << ranks;
      });
  }
}

TEST_F(SharedMetricsTest, ANumberThatIsNoneOnOneRankMakesAllUndefined) {
  make(6);
  scores_[50] = std::numeric_limits<float>::quiet_NaN();
  on_ranks(3, [&](int rank, comm::Communicator& communicator) {
    MetricSet set = set_of(rank, 3);
    set.share(communicator, kSoon);
    for (const MetricValue& value : set.values()) EXPECT_TRUE(std::isnan(value.value)) << value.name;
  });
}

TEST_F(SharedMetricsTest, GroupsAreNotShared) {
  EXPECT_FALSE(can_be_shared({MetricKind::GroupAuc}));
  EXPECT_FALSE(can_be_shared({MetricKind::NdcgAtK, 10}));
  EXPECT_TRUE(can_be_shared({MetricKind::Auc}));
  metrics_ = {{MetricKind::GroupAuc}};
  make(1);
  on_ranks(1, [&](int rank, comm::Communicator& communicator) {
    MetricSet set = set_of(rank, 1);
    EXPECT_ERROR(set.share(communicator, kSoon), InvalidArgument, HasSubstr("one process"));
  });
}

}  // namespace
}  // namespace braid::worker
