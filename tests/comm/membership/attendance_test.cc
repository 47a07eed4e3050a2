// Attendances over real sockets: worlds form, members come and go.
#include "comm/membership/attendance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "tests/support/message_of.h"

namespace braid::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class AttendanceTest : public ::testing::Test {
 protected:
  void host(const MembershipLimits& limits) {
    HostedMembership hosted = host_membership("job", "worker 0", limits);
    leader_ = std::move(hosted.attendance);
    server_ = RendezvousServer::start(
        {.listen = "127.0.0.1:0", .security = {}, .add_services = hosted.add_service});
  }
  void TearDown() override {
    if (leader_) leader_->end(nullptr);
    server_.reset();
  }
  std::unique_ptr<Attendance> worker(const std::string& name, const std::string& job = "job") {
    return attend({server_->address(), job, name, 0, {}, 10s});
  }
  static WaitContext soon() { return WaitContext::with_timeout(20s); }
  static std::future<World> next(Attendance& attendance, std::uint64_t left, Holding holding = {}) {
    return std::async(std::launch::async,
                      [&attendance, left, holding] { return attendance.next_world(left, holding, soon()); });
  }

  std::unique_ptr<RendezvousServer> server_;
  std::unique_ptr<Attendance> leader_;
};

TEST_F(AttendanceTest, AWorkerThatIsGoneEndsTheWorldAndAnotherTakesItsPlace) {
  host({.min_workers = 2, .max_workers = 3, .listed = 3});
  auto one = worker("worker 1"), two = worker("worker 2");
  std::atomic<int> told = 0;
  leader_->on_over([&](std::uint64_t generation, const std::string& why) {
    EXPECT_EQ(generation, 1U);
    EXPECT_THAT(why, HasSubstr("worker 2"));
    ++told;
  });
  auto a = next(*one, 0), b = next(*two, 0), c = next(*leader_, 0);
  EXPECT_EQ(c.get().size(), 3);
  EXPECT_EQ(a.get().generation, 1U);
  const int rank_of_two = b.get().rank;
  two.reset();
  const auto soon_enough = std::chrono::steady_clock::now() + 10s;
  while (told == 0 && std::chrono::steady_clock::now() < soon_enough) std::this_thread::sleep_for(1ms);
  auto d = next(*one, 1, {3, true});
  auto e = next(*leader_, 1, {4, true});
  const World second = e.get();
  EXPECT_EQ(second.size(), 2);
  EXPECT_EQ(second.source, 0);
  EXPECT_EQ(second.step, 4U);
  EXPECT_EQ(d.get().rank, 1);
  EXPECT_GE(rank_of_two, 1);
  EXPECT_EQ(told, 1);
  auto three = worker("worker 3");
  auto f = next(*three, 0);
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  while (!leader_->newcomers_wait() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(1ms);
  ASSERT_TRUE(leader_->newcomers_wait());
  auto g = next(*one, 2, {5, true}), h = next(*leader_, 2, {5, true});
  EXPECT_THAT(f.get().names, ElementsAre("worker 0", "worker 1", "worker 3"));
  EXPECT_TRUE(g.get().spread);
  EXPECT_FALSE(leader_->newcomers_wait());
  leader_->on_over({});
}

TEST_F(AttendanceTest, WhoWasSilentIsRefusedAndComesAgain) {
  host({.min_workers = 1, .max_workers = 3, .listed = 2, .silence = 200ms});
  auto one = worker("worker 1");
  auto a = next(*one, 0), b = next(*leader_, 0);
  a.get();
  b.get();
  EXPECT_EQ(leader_->next_world(1, {2, true}, soon()).size(), 1) << "worker 1 says nothing";
  auto again = next(*one, 1, {2, true});
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  while (!leader_->newcomers_wait() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(1ms);
  const World third = leader_->next_world(2, {9, true}, soon());
  EXPECT_EQ(third.size(), 2);
  EXPECT_EQ(third.source, 0);
  EXPECT_TRUE(third.spread) << "what it had counts for nothing";
  EXPECT_EQ(again.get().generation, 3U);
}

TEST_F(AttendanceTest, TooFewEndForAllWithTheReason) {
  host({.min_workers = 3, .max_workers = 3, .listed = 3, .first_wait = 100ms, .wait = 200ms});
  auto one = worker("worker 1");
  auto a = next(*one, 0);
  EXPECT_THAT(message_of<Error>([&] { leader_->next_world(0, {}, soon()); }),
              HasSubstr("too few workers: 2 of at least 3 workers are there"));
  EXPECT_THAT(message_of<Error>([&] { a.get(); }), HasSubstr("too few workers"));
}

TEST_F(AttendanceTest, ALostLeaderIsNamed) {
  host({.min_workers = 2, .max_workers = 2, .listed = 2});
  auto one = worker("worker 1");
  auto a = next(*one, 0), b = next(*leader_, 0);
  a.get();
  b.get();
  leader_.reset();
  EXPECT_THAT(message_of<Error>([&] {
                one->next_world(1, {1, true}, soon());
              }),
              HasSubstr("the worker that leads the job has ended"));
  auto late = worker("worker 2");
  EXPECT_THAT(message_of<Error>([&] { late->next_world(0, {}, soon()); }), HasSubstr("has ended"));
}

TEST_F(AttendanceTest, AWorkerOfAnotherJobIsRefused) {
  host({.min_workers = 1, .max_workers = 2, .listed = 2});
  auto other = worker("worker 1", "another");
  EXPECT_THAT(message_of<Error>([&] { other->next_world(0, {}, soon()); }),
              HasSubstr("worker 1 is of job 'another', and the leader of job 'job'"));
}

TEST_F(AttendanceTest, WaitsEnd) {
  host({.min_workers = 3, .max_workers = 3, .listed = 3});
  EXPECT_THAT(message_of<Error>([&] { leader_->next_world(0, {}, WaitContext::with_timeout(50ms)); }),
              HasSubstr("waiting for workers: 1 of at least 3"));
  auto one = worker("worker 1");
  std::stop_source stop;
  auto a = std::async(std::launch::async, [&] {
    return message_of<Error>(
        [&] { one->next_world(0, {}, WaitContext::with_timeout(20s, stop.get_token())); });
  });
  std::this_thread::sleep_for(50ms);
  stop.request_stop();
  EXPECT_THAT(a.get(), HasSubstr("cancelled"));
}

}  // namespace
}  // namespace braid::comm
