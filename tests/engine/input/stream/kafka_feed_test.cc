// Which spans of offsets are taken, and what becomes of values; over a log that is held in memory.
#include "engine/input/stream/kafka_feed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <map>
#include <mutex>

#include "base/error.h"
#include "engine/input/formats/readers.h"
#include "engine/input/stream/followed_rows.h"
#include "engine/input/stream/kafka_records.h"
#include "engine/input/stream/row_blocks.h"
#include "engine/input/stream/streamed_rows.h"
#include "tests/support/expect_error.h"

namespace braid {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

class HeldLog : public KafkaLog {
 public:
  void send(const KafkaPartition& partition, std::optional<std::string> value) {
    std::lock_guard lock(mu_);
    log_[partition].values.push_back(std::move(value));
  }
  void send_rows(int partition, int first, int rows) {
    for (int r = 0; r < rows; ++r) send({"clicks", partition}, std::to_string(first + r));
  }
  void make(const KafkaPartition& partition) { log_[partition]; }
  /// Nobody can read offsets before this one any more.
  void forget(const KafkaPartition& partition, std::int64_t before) { log_[partition].begin = before; }
  void remove(const KafkaPartition& partition) { log_.erase(partition); }
  int fetches() const { return fetches_; }

  std::vector<KafkaPartition> partitions(const std::stop_token&) override {
    std::lock_guard lock(mu_);
    std::vector<KafkaPartition> all;
    for (const auto& [partition, records] : log_) all.push_back(partition);
    return all;
  }
  std::vector<OffsetRange> offsets(const std::vector<KafkaPartition>& partitions,
                                   const std::stop_token&) override {
    std::lock_guard lock(mu_);
    std::vector<OffsetRange> ranges;
    for (const KafkaPartition& partition : partitions)
      ranges.push_back({log_.at(partition).begin, std::ssize(log_.at(partition).values)});
    return ranges;
  }
  void fetch(const KafkaPartition& partition, OffsetRange range, const EachRecord& each,
             const std::stop_token&) override {
    std::lock_guard lock(mu_);
    ++fetches_;
    const Records& its = log_.at(partition);
    if (range.begin < its.begin) throw DataLoss("gone");
    for (std::int64_t at = range.begin; at < range.end; ++at) {
      const auto& value = its.values.at(static_cast<std::size_t>(at));
      each(at, value ? std::optional<std::string_view>(*value) : std::nullopt);
    }
  }

 private:
  struct Records {
    std::int64_t begin = 0;
    std::vector<std::optional<std::string>> values;
  };
  std::mutex mu_;
  std::map<KafkaPartition, Records> log_;
  int fetches_ = 0;
};

class KafkaFeedTest : public testing::Test {
 protected:
  GrowingTopics topics() const {
    return {.log = log_,
            .asked_to_stop = {},
            .poll = 5ms,
            .idle = 100ms,
            .look_for_partitions = 0ms,
            .records = 10,
            .gather = 0ms};
  }
  static std::vector<std::string> names(FileFeed& feed) {
    std::vector<std::string> names;
    while (const auto file = feed.get(names.size(), {})) names.push_back(file->name);
    return names;
  }
  std::shared_ptr<FollowedFiles> files(const std::shared_ptr<FileFeed>& from, int lanes = 1,
                                       KafkaRecordsOptions options = {.layout = RecordLayout::Fields}) const {
    const auto records = std::make_shared<KafkaRecords>(log_, options);
    const std::int64_t bad = options.max_bad_records;
    return std::make_shared<FollowedFiles>(
        from,
        [records, bad](const std::string& span) -> std::shared_ptr<BlockSource> {
          const MakeRowStream make = [](const ReadOptions& read) {
            CsvOptions csv;
            csv.columns = {{.name = "y", .kind = ColumnKind::Label}};
            csv.read = read;
            return stream_csv({}, csv);
          };
          return make_row_blocks({records->file(span)}, make, bad);
        },
        lanes);
  }
  static std::unique_ptr<Batcher> batcher(const std::shared_ptr<FollowedFiles>& from, BatchOptions batches) {
    FollowedOptions options{
        .global_batch = batches.global_batch, .shuffle = batches.shuffle, .seed = batches.seed};
    auto rows = std::make_shared<StreamedRows>(from, std::make_unique<FollowPlan>(from, options),
                                               StreamedRowsOptions{.threads = 1}, batches);
    return std::make_unique<Batcher>(std::move(rows), std::vector<std::string>{"label"}, batches);
  }
  static std::vector<int> rows_of(const Batch& batch) {
    std::vector<int> rows;
    for (const float row : batch.tensors[0].data<float>()) rows.push_back(static_cast<int>(row));
    return rows;
  }

  std::shared_ptr<HeldLog> log_ = std::make_shared<HeldLog>();
};

TEST_F(KafkaFeedTest, TakesOfEachPartitionInTurnWhatIsNew) {
  log_->send_rows(0, 0, 25);
  log_->send_rows(1, 0, 3);
  const auto feed = follow_kafka(topics(), {});
  EXPECT_THAT(names(*feed),
              ElementsAre("kafka:clicks[0]:0-0", "kafka:clicks[0]:0-10", "kafka:clicks[1]:0-0",
                          "kafka:clicks[1]:0-3", "kafka:clicks[0]:10-20", "kafka:clicks[0]:20-25"));
  EXPECT_FALSE(feed->get(6, {})) << "the end is one";
}

TEST_F(KafkaFeedTest, FewRecordsAreLeftToGatherButNotForLong) {
  log_->make({"clicks", 0});
  GrowingTopics patient = topics();
  patient.records = 80;
  patient.gather = 60s;
  patient.idle = 150ms;
  const auto feed = follow_kafka(patient, {});
  ASSERT_TRUE(feed->get(0, {}));
  log_->send_rows(0, 0, 9);
  auto few = std::async(std::launch::async, [&] { return feed->get(1, {}); });
  EXPECT_EQ(few.wait_for(50ms), std::future_status::timeout);
  log_->send_rows(0, 9, 1);
  EXPECT_EQ(few.get()->name, "kafka:clicks[0]:0-10");
  log_->send_rows(0, 10, 2);
  EXPECT_EQ(feed->get(2, {})->name, "kafka:clicks[0]:10-12") << "before the input ends they are taken";
  EXPECT_FALSE(feed->get(3, {}));
  patient.gather = 20ms;
  patient.idle = 60s;
  EXPECT_EQ(follow_kafka(patient, {{"kafka:clicks[0]:0-11", 11, 1}})->get(1, {})->name,
            "kafka:clicks[0]:11-12");
}

TEST_F(KafkaFeedTest, GoesOnWhereACheckpointWasEvenOfPartitionsWithoutRecords) {
  log_->send_rows(0, 0, 5);
  log_->make({"clicks", 1});
  GrowingTopics latest = topics();
  latest.from_now = true;
  const auto first = follow_kafka(latest, {});
  EXPECT_THAT(names(*first), ElementsAre("kafka:clicks[0]:5-5", "kafka:clicks[1]:0-0"));
  log_->send_rows(0, 5, 2);
  log_->send_rows(1, 0, 1);
  log_->send_rows(2, 0, 1);  // a partition that was made meanwhile
  const auto again = follow_kafka(latest, taken_files(text_of(first->taken())));
  EXPECT_EQ(again->known(), 0U) << "nobody opened them";
  EXPECT_THAT(names(*again),
              ElementsAre("kafka:clicks[0]:5-5", "kafka:clicks[1]:0-0", "kafka:clicks[0]:5-7",
                          "kafka:clicks[1]:0-1", "kafka:clicks[2]:0-0", "kafka:clicks[2]:0-1"));
}

TEST_F(KafkaFeedTest, RecordsThatAreGoneAreSaidAndTopicsThatAreOthersRefused) {
  log_->send_rows(0, 0, 20);
  const auto first = follow_kafka(topics(), {});
  const std::vector<TakenFile> taken{{"kafka:clicks[0]:0-4", 4, 1}};
  log_->forget({"clicks", 0}, 9);
  EXPECT_THAT(names(*follow_kafka(topics(), taken)),
              ElementsAre("kafka:clicks[0]:0-4", "kafka:clicks[0]:9-19", "kafka:clicks[0]:19-20"));
  EXPECT_ERROR(follow_kafka(topics(), {{"kafka:clicks[0]:0-40", 40, 1}})->get(1, {}), DataLoss,
               AllOf(HasSubstr("clicks[0] ends at offset 20"), HasSubstr("offset 40")));
  EXPECT_ERROR(follow_kafka(topics(), {{"kafka:views[0]:0-4", 4, 1}})->get(1, {}), DataLoss,
               HasSubstr("views[0]"));
  for (const char* bad :
       {"clicks", "kafka:clicks[0]", "kafka:clicks[0]:1-", "kafka:clicks[0]:1-2x", "kafka:clicks[x]:1-2"})
    EXPECT_ERROR(follow_kafka(topics(), {{bad}}), DataLoss, HasSubstr(bad));
}

TEST_F(KafkaFeedTest, EndsWhenItIsAskedToAndWhenNobodyWaits) {
  log_->make({"clicks", 0});
  GrowingTopics patient = topics();
  patient.idle = 60s;
  std::atomic<bool> asked = false;
  patient.asked_to_stop = [&] { return asked.load(); };
  const auto feed = follow_kafka(patient, {});
  auto waits = std::async(std::launch::async, [&] { return feed->get(1, {}); });
  EXPECT_EQ(waits.wait_for(50ms), std::future_status::timeout);
  asked = true;
  EXPECT_FALSE(waits.get());
  asked = false;
  std::stop_source stop;
  auto cancelled = std::async(std::launch::async, [&] { return feed->get(1, stop.get_token()); });
  stop.request_stop();
  EXPECT_ERROR(cancelled.get(), Cancelled, HasSubstr("records"));
}

TEST_F(KafkaFeedTest, BatchesHaveEachRecordOnceAndDoNotDependOnTheWorkers) {
  for (const int lanes : {1, 4}) {
    log_ = std::make_shared<HeldLog>();
    log_->send_rows(0, 0, 150);
    log_->send_rows(1, 150, 43);
    log_->send_rows(2, 193, 7);
    const auto feed = std::shared_ptr(follow_kafka(topics(), {}));
    const auto whole = batcher(files(feed, lanes), {.global_batch = 16, .shuffle = true, .seed = 3});
    std::vector<std::vector<int>> batches;
    std::vector<int> all;
    for (std::uint64_t t = 0; t < 10; ++t) {
      batches.push_back(rows_of(whole->make(t)));
      all.insert(all.end(), batches.back().begin(), batches.back().end());
    }
    std::ranges::sort(all);
    EXPECT_EQ(std::ranges::unique(all).size(), 0U);
    const std::vector<TakenFile> taken = feed->taken();
    for (const int world : {2, 3}) {
      std::vector<int> parts;
      for (int rank = 0; rank < world; ++rank) {
        const auto own = std::shared_ptr(follow_kafka(topics(), taken));
        const auto worker =
            batcher(files(own, lanes),
                    {.global_batch = 16, .rank = rank, .world = world, .shuffle = true, .seed = 3});
        for (const int row : rows_of(worker->make(7))) parts.push_back(row);
      }
      EXPECT_EQ(parts, batches[7]) << world << " workers, " << lanes << " lanes";
    }
  }
}

TEST_F(KafkaFeedTest, AWorkerReadsTheSpansOfItsLanes) {
  log_->send_rows(0, 0, 400);
  const auto taken = [&] {
    const auto feed = std::shared_ptr(follow_kafka(topics(), {}));
    batcher(files(feed, 4), {.global_batch = 16})->make(20);
    return feed->taken();
  }();
  const int before = log_->fetches();
  const auto own = std::shared_ptr(follow_kafka(topics(), taken));
  const auto worker = batcher(files(own, 4), {.global_batch = 16, .rank = 0, .world = 2});
  for (std::uint64_t t = 0; t < 20; ++t) worker->make(t);
  EXPECT_LE(log_->fetches() - before, static_cast<int>(taken.size()) / 2 + 4);
}

TEST_F(KafkaFeedTest, ValuesThatAreNoRecordsAreBadAndDoNotReachTheirNeighbours) {
  const auto rows_with = [&](std::optional<std::string> value, std::int64_t allowed) {
    log_ = std::make_shared<HeldLog>();
    log_->send({"clicks", 0}, "1");
    log_->send({"clicks", 0}, std::move(value));
    log_->send({"clicks", 0}, "3\r\n");
    log_->send({"clicks", 0}, "\"4\"\n");
    const auto feed = std::shared_ptr(follow_kafka(topics(), {}));
    const auto followed =
        files(feed, 1, {.layout = RecordLayout::Fields, .comment = "#", .max_bad_records = allowed});
    std::vector<BlockPart> parts{{(std::size_t{2} << 32), 0, followed->file(1).taken.rows}};
    const auto table = followed->read(parts);
    std::vector<int> rows;
    for (const float row : table->find("label")->data.data<float>()) rows.push_back(static_cast<int>(row));
    return rows;
  };
  EXPECT_THAT(rows_with("\xEF\xBB\xBF"
                        "2",
                        0),
              ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(rows_with(std::nullopt, 0), ElementsAre(1, 3, 4)) << "a tombstone is no record";
  for (const char* bad : {"", " ", "#2", "2\n5", "\"2", "2\n\"", "\n"}) {
    EXPECT_THAT(rows_with(bad, 1), ElementsAre(1, 3, 4)) << '\'' << bad << '\'';
    EXPECT_ERROR(rows_with(bad, 0), DataLoss, AllOf(HasSubstr("clicks[0] offset 1"), HasSubstr("max_bad")));
  }
}

TEST_F(KafkaFeedTest, SpansThatDoNotFitAreFetchedAgain) {
  log_->send_rows(0, 0, 30);
  const auto records = std::make_shared<KafkaRecords>(log_, KafkaRecordsOptions{.held_bytes = 40});
  const IndexedFile first = records->file("kafka:clicks[0]:0-10"),
                    second = records->file("kafka:clicks[0]:10-20");
  EXPECT_EQ(log_->fetches(), 2);
  EXPECT_EQ(*second.load(), "10\n11\n12\n13\n14\n15\n16\n17\n18\n19\n");
  EXPECT_EQ(log_->fetches(), 2) << "it is held";
  EXPECT_EQ(*first.load(), "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n");
  EXPECT_EQ(log_->fetches(), 3);
  EXPECT_EQ(first.rows(), 10);
  EXPECT_THAT(first.blocks, SizeIs(1));
}

}  // namespace
}  // namespace braid
