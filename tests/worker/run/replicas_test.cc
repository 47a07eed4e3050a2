// What replicas of a process share: rows, names of streams, and who is named when several fail.
#include "worker/run/replicas.h"

#include <gmock/gmock.h>

#include <thread>

#include "base/error.h"
#include "comm/local/local_communicator.h"

namespace braid::worker {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

/// What `call` throws, which must be an E.
template <class E, class Call>
std::string text_of(Call call) {
  try {
    call();
  } catch (const E& error) {
    return error.message();
  }
  return "nothing was thrown";
}

template <class E>
std::exception_ptr error_of(const std::string& text) {
  return std::make_exception_ptr(E(text));
}

TEST(ReplicasTest, TheFirstReadsForAll) {
  Replicas replicas({"/cpu:0", "/cpu:1"});
  std::shared_ptr<const Table> second;
  std::jthread other([&] {
    second = replicas.rows(1, []() -> JobData { throw Internal("it has no need to read"); }, {}).train;
  });
  const auto table = std::make_shared<const Table>();
  EXPECT_EQ(replicas.rows(0, [&] { return JobData{.train = table, .test = table}; }, {}).test, table);
  other.join();
  EXPECT_EQ(second, table);
}

TEST(ReplicasTest, WhoWaitsForRowsHearsThatThereAreNone) {
  Replicas replicas({"/cpu:0", "/cpu:1"});
  std::jthread other([&] {
    std::this_thread::sleep_for(20ms);
    replicas.fail(0, error_of<DataLoss>("line 3"));
  });
  EXPECT_THAT(text_of<Unavailable>([&] { replicas.rows(1, [] { return JobData(); }, {}); }),
              HasSubstr("replica /cpu:0 has read no rows"));
  std::stop_source stop;
  stop.request_stop();
  Replicas asked({"/cpu:0", "/cpu:1"});
  EXPECT_THROW(asked.rows(
                   1, [] { return JobData(); }, stop.get_token()),
               Cancelled);
}

TEST(ReplicasTest, TheCauseIsNamedAndNotWhatFollowsFromIt) {
  Replicas replicas({"/gpu:0", "/gpu:2", "/gpu:3"});
  replicas.throw_failure();  // nothing
  replicas.fail(0, error_of<Unavailable>("rank 1 is gone"));
  replicas.fail(1, error_of<DataLoss>("line 3"));
  replicas.fail(2, error_of<DataLoss>("line 4"));
  replicas.fail(0, error_of<DeadlineExceeded>("late"));
  EXPECT_EQ(text_of<DataLoss>([&] { replicas.throw_failure(); }), "replica /gpu:2: line 3");
}

TEST(ReplicasTest, OneThatFailsEndsTheWaitsOfTheOthers) {
  Replicas replicas({"/cpu:0", "/cpu:1"});
  auto group = comm::make_local_group(2);
  const std::shared_ptr<comm::Communicator> first = std::move(group[0]), second = std::move(group[1]);
  replicas.joined(0, first);
  std::jthread other([&] {
    std::this_thread::sleep_for(20ms);
    replicas.fail(1, error_of<DataLoss>("line 3"));
  });
  EXPECT_THROW(first->barrier(WaitContext::with_timeout(30s)), Unavailable);
  other.join();
  replicas.joined(1, second);
  EXPECT_THROW(second->barrier(WaitContext::with_timeout(30s)), Unavailable) << "it joined too late";
}

TEST(ReplicasTest, StreamsAreNamedAfterDevicesAndKeptWhenTheyEnd) {
  Replicas replicas({"/cpu:0", "/cpu:1"});
  const auto source = [](double seconds) {
    return [seconds] {
      HostActivity activity;
      activity.compute_seconds = seconds;
      activity.streams.resize(1);
      activity.streams[0].name = "compute0";
      activity.streams[0].busy_seconds = seconds;
      activity.device_streams = {{"h2d", 1, 2}};
      return activity;
    };
  };
  replicas.watch(0, source(1));
  replicas.watch(1, source(2));
  replicas.freeze(1);
  const HostActivity all = replicas.activity();
  ASSERT_EQ(all.streams.size(), 2U);
  EXPECT_EQ(all.streams[0].name, "/cpu:0/compute0");
  EXPECT_EQ(all.streams[1].name, "/cpu:1/compute0");
  EXPECT_EQ(all.streams[1].busy_seconds, 2);
  EXPECT_EQ(all.compute_seconds, 3);
  EXPECT_EQ(all.device_streams[1].name, "/cpu:1/h2d");
}

}  // namespace
}  // namespace braid::worker
