// Kafka as librdkafka's own mock has it (tests/support/kafka_broker.h): offsets, records, brokers that are
// away.
#include "engine/input/files/kafka.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <future>
#include <thread>

#include "base/error.h"
#include "tests/support/expect_error.h"
#include "tests/support/kafka_broker.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class KafkaTest : public testing::Test {
 protected:
  KafkaTest() { broker_.make_topic("clicks", 2); }
  ~KafkaTest() override { unsetenv("BRAID_KAFKA_CONFIG"); }

  std::unique_ptr<KafkaLog> open(std::chrono::milliseconds deadline = 20s,
                                 const std::string& topics = "clicks") const {
    return open_kafka(kafka_name(broker_.name(topics)), deadline);
  }
  static std::vector<std::string> fetch(KafkaLog& log, OffsetRange range, int partition = 0) {
    std::vector<std::string> records;
    log.fetch({"clicks", partition}, range,
              [&](std::int64_t offset, std::optional<std::string_view> value) {
                records.push_back(std::to_string(offset) + ":" + std::string(value.value_or("(none)")));
              },
              {});
    return records;
  }
  void config(const std::string& text) const {
    std::ofstream(dir_.path() / "kafka.conf") << text;
    setenv("BRAID_KAFKA_CONFIG", (dir_.path() / "kafka.conf").c_str(), 1);
  }

  TempDir dir_;
  KafkaBroker broker_;
};

TEST(KafkaNameTest, HasBrokersAndTopics) {
  const KafkaName name = kafka_name("kafka://a:9092,b:1/clicks,views.v-2_x");
  EXPECT_EQ(name.brokers, "a:9092,b:1");
  EXPECT_THAT(name.topics, ElementsAre("clicks", "views.v-2_x"));
  for (const char* bad : {"kafka://a:1", "kafka:///clicks", "kafka://a:1/", "kafka://a:1/a,",
                          "kafka://a:1/a b", "kafka://a:1/a,a", "kafka://a:1/.."})
    EXPECT_ERROR(kafka_name(bad), InvalidArgument, HasSubstr(bad));
  EXPECT_ERROR(kafka_name("kafka://me:hunter2@a:1/clicks"), InvalidArgument,
               AllOf(HasSubstr("BRAID_KAFKA_CONFIG"), Not(HasSubstr("hunter2"))));
}

TEST_F(KafkaTest, RecordsBetweenOffsetsComeInOrder) {
  const auto log = open();
  EXPECT_THAT(log->partitions({}), ElementsAre(KafkaPartition{"clicks", 0}, KafkaPartition{"clicks", 1}));
  EXPECT_EQ(log->offsets({{"clicks", 1}}, {})[0].end, 0);
  broker_.send("clicks", 0, {"a", "b", std::nullopt, ""});
  broker_.send("clicks", 0, {"e", "f"});
  broker_.send("clicks", 1, {"other"});
  const std::vector<OffsetRange> both = log->offsets({{"clicks", 1}, {"clicks", 0}}, {});
  EXPECT_EQ(both[0].end, 1);
  const OffsetRange there = both[1];
  EXPECT_EQ(there.begin, 0);
  EXPECT_EQ(there.end, 6);
  EXPECT_THAT(fetch(*log, {0, 6}), ElementsAre("0:a", "1:b", "2:(none)", "3:", "4:e", "5:f"));
  EXPECT_THAT(fetch(*log, {1, 5}), ElementsAre("1:b", "2:(none)", "3:", "4:e"));
  EXPECT_THAT(fetch(*log, {1, 2}), ElementsAre("1:b")) << "again, and further ahead than before";
  EXPECT_THAT(fetch(*log, {0, 1}, 1), ElementsAre("0:other"));
  EXPECT_THAT(fetch(*log, {3, 3}), ElementsAre());
}

TEST_F(KafkaTest, ManyRecordsComeWholeToSeveralThreads) {
  std::vector<std::optional<std::string>> values;
  for (int i = 0; i < 5000; ++i) values.emplace_back("record " + std::to_string(i));
  broker_.send("clicks", 0, values);
  broker_.send("clicks", 1, values);
  const auto log = open();
  std::vector<std::future<std::vector<std::string>>> reads;
  for (int i = 0; i < 4; ++i)
    reads.push_back(std::async(std::launch::async, [&, i] { return fetch(*log, {100, 4900}, i % 2); }));
  for (auto& read : reads) {
    const std::vector<std::string> records = read.get();
    ASSERT_EQ(records.size(), 4800U);
    EXPECT_EQ(records.front(), "100:record 100");
    EXPECT_EQ(records.back(), "4899:record 4899");
  }
}

TEST_F(KafkaTest, WhatIsNotThereIsRefusedAtOnce) {
  broker_.refuse_topic("nosuch.topic");
  EXPECT_ERROR(open(30s, "nosuch.topic")->partitions({}), InvalidArgument, HasSubstr("nosuch.topic"));
  broker_.send("clicks", 0, {"a"});
  EXPECT_ERROR(fetch(*open(), {7, 9}), DataLoss,
               AllOf(HasSubstr("offset 7 of clicks[0]"), HasSubstr(broker_.address())));
}

TEST_F(KafkaTest, ABrokerThatIsAwayIsNamedAtTheDeadline) {
  const auto begin = std::chrono::steady_clock::now();
  const KafkaName away = kafka_name("kafka://127.0.0.1:1/clicks");
  EXPECT_ERROR(open_kafka(away, 700ms)->partitions({}), DeadlineExceeded,
               AllOf(HasSubstr("127.0.0.1:1"), HasSubstr("refused"), HasSubstr("BRAID_IO_DEADLINE")));
  const auto log = open(1500ms);
  broker_.send("clicks", 0, {"a", "b"});
  EXPECT_EQ(log->offsets({{"clicks", 0}}, {})[0].end, 2);
  broker_.set_down(true);
  EXPECT_ERROR(fetch(*log, {0, 2}), DeadlineExceeded,
               AllOf(HasSubstr(broker_.address()), HasSubstr("clicks[0]"), HasSubstr("offset 0")));
  EXPECT_ERROR(log->offsets({{"clicks", 0}, {"clicks", 1}}, {}), DeadlineExceeded,
               AllOf(HasSubstr(broker_.address()), HasSubstr("offsets of clicks[0]")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
  broker_.set_down(false);
  EXPECT_THAT(fetch(*open(30s), {0, 2}), ElementsAre("0:a", "1:b"));
}

TEST_F(KafkaTest, ABrokerThatComesBackOrIsSlowIsWaitedFor) {
  broker_.send("clicks", 0, {"a", "b"});
  const auto log = open(60s);
  broker_.set_down(true);
  std::jthread later([&] {
    std::this_thread::sleep_for(500ms);
    broker_.set_down(false);
  });
  EXPECT_THAT(fetch(*log, {0, 2}), ElementsAre("0:a", "1:b"));
  broker_.set_delay_ms(300);
  EXPECT_THAT(fetch(*log, {1, 2}), ElementsAre("1:b"));
  broker_.set_delay_ms(0);
  broker_.fail_fetches(3);
  EXPECT_THAT(fetch(*log, {0, 2}), ElementsAre("0:a", "1:b"));
}

TEST_F(KafkaTest, AWaitForRecordsEndsWhenNobodyWants) {
  broker_.send("clicks", 0, {"a"});
  const auto log = open(60s);
  log->partitions({});
  broker_.set_down(true);
  std::stop_source stop;
  auto waits = std::async(std::launch::async, [&] {
    log->fetch(
        {"clicks", 0}, {0, 1}, [](auto...) {}, stop.get_token());
  });
  EXPECT_EQ(waits.wait_for(300ms), std::future_status::timeout);
  stop.request_stop();
  EXPECT_ERROR(waits.get(), Cancelled, HasSubstr("nobody"));
}

TEST_F(KafkaTest, SettingsComeFromAFileAndAreNotSaid) {
  broker_.send("clicks", 0, {"a"});
  config("# of this site\n\n client.rack = here \r\nfetch.wait.max.ms=20\n");
  EXPECT_THAT(fetch(*open(), {0, 1}), ElementsAre("0:a"));
  for (const char* bad :
       {"sasl.pasword=hunter2\n", "fetch.wait.max.ms=hunter2\n", "hunter2\n", "bootstrap.servers=hunter2\n",
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=hunter2\n"
        "sasl.password=hunter2\nssl.ca.location=/nonexistent/hunter2\n"}) {
    config(bad);
    EXPECT_ERROR(open(), InvalidArgument, AllOf(HasSubstr("BRAID_KAFKA_CONFIG"), Not(HasSubstr("hunter2"))));
  }
  setenv("BRAID_KAFKA_CONFIG", "/nonexistent/kafka.conf", 1);
  EXPECT_ERROR(open(), InvalidArgument, HasSubstr("/nonexistent/kafka.conf"));
}

}  // namespace
}  // namespace braid
