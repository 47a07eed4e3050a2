#include "watch/job_status.h"

#include <gmock/gmock.h>

#include <thread>

#include "base/http.h"
#include "base/http_client.h"
#include "tests/support/expect_error.h"
#include "tests/watch/made_job.h"

namespace braid::watch {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

TEST(JobStatusTest, WhatIsWrittenIsReadBack) {
  JobStatus job = made_job(2, 1);
  job.peers[1].error = "no answer in time";
  job.peers[1].silent_seconds = 3;
  job.warnings.push_back({"r", "t", "x", "y"});
  EXPECT_EQ(to_json(job_status_from_json(to_json(job))), to_json(job));
  EXPECT_ERROR(job_status_from_json("7"), InvalidArgument, HasSubstr("not the status of a job"));
}

TEST(JobStatusTest, SilentPeersCostTheDeadlineOnceAndKeepWhatTheySaid) {
  HttpServer good("127.0.0.1:0"), odd("127.0.0.1:0");
  good.handle("/status.json", [](std::string_view) {
    return HttpResponse{200, "application/json", to_json(made_worker(0))};
  });
  odd.handle("/status.json", [](std::string_view) { return HttpResponse{200, "text/plain", "hello"}; });
  std::vector<PeerAddress> peers{{"", good.address()}, {"worker 1", odd.address()}};
  for (int i = 2; i < 20; ++i)
    peers.push_back({"worker " + std::to_string(i), "127.0.0.1:" + std::to_string(i)});
  peers.push_back({"worker 20", "no port"});
  JobStatus job;
  const auto begin = std::chrono::steady_clock::now();
  ask_peers(peers, 2s, job);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  ASSERT_EQ(job.peers.size(), 21U);
  EXPECT_TRUE(job.peers[0].answers());
  EXPECT_EQ(job.peers[0].task, "worker 0");
  EXPECT_EQ(job.job, "made");
  EXPECT_THAT(job.peers[1].error, HasSubstr("not as a process of Braid"));
  EXPECT_THAT(job.peers[2].error, HasSubstr("refused"));
  EXPECT_THAT(job.peers[20].error, HasSubstr("host:port"));
}

TEST(JobStatusTest, APeerThatAcceptsAndSaysNothingMeetsTheDeadline) {
  HttpServer good("127.0.0.1:0"), slow("127.0.0.1:0");
  good.handle("/status.json", [](std::string_view) {
    return HttpResponse{200, "application/json", to_json(made_worker(0))};
  });
  slow.handle("/status.json", [](std::string_view) {
    std::this_thread::sleep_for(3s);
    return HttpResponse{};
  });
  JobStatus job;
  ask_peers({{"", good.address()}, {"worker 1", slow.address()}}, 300ms, job);
  EXPECT_TRUE(job.peers[0].answers());
  EXPECT_EQ(job.peers[1].error, "no answer in time");
}

TEST(JobStatusTest, AnAnswerThatIsTooLongIsAnError) {
  HttpServer server("127.0.0.1:0");
  server.handle("/x", [](std::string_view) { return HttpResponse{.body = std::string(10'000, 'x')}; });
  EXPECT_EQ(http_get_all({{server.address(), "/x"}}, 2s, 100'000)[0].status, 200);
  const HttpAnswer answer = http_get_all({{server.address(), "/x"}}, 2s, 100)[0];
  EXPECT_EQ(answer.status, 0);
  EXPECT_THAT(answer.error, ::testing::AnyOf(HasSubstr("answers with 10000 bytes"), HasSubstr("body limit")));
}

TEST(JobStatusTest, NobodyThereIsOnePeerWithTheReason) {
  const JobStatus job = ask_job("127.0.0.1:1", 1s);
  ASSERT_EQ(job.peers.size(), 1U);
  EXPECT_FALSE(job.peers[0].answers());
}

}  // namespace
}  // namespace braid::watch
