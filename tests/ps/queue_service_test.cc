// The queue of batches over gRPC: a server of a job, and workers that talk to it.
#include <gtest/gtest.h>

#include "base/error.h"
#include "ps/client/queue_link.h"
#include "tests/ps/cluster.h"

namespace braid::ps {
namespace {

using Kind = QueueAnswer::Kind;

class QueueServiceTest : public ::testing::Test {
 protected:
  std::unique_ptr<BatchQueue> link(std::uint64_t incarnation = 1, const std::string& job = "test",
                                   const comm::Security& security = {}) {
    return make_queue_link({cluster_.server(0).grpc_address(), job, incarnation, security});
  }
  static QueueCall take(int worker, std::uint64_t number, std::uint64_t life = 0,
                        std::vector<HeldUnit> held = {}) {
    return {.worker = worker,
            .session = 10 + static_cast<std::uint64_t>(worker),
            .number = number,
            .life = life,
            .held = std::move(held),
            .wants = true};
  }

  const QueuePlan plan_{.epoch_batches = 50, .total = 100, .take = 4, .batch_rows = 8, .workers = 2};
  Cluster cluster_{{.servers = 1, .workers = 2}};
};

TEST_F(QueueServiceTest, WorkersWaitForTheLeaderAndShareItsBatches) {
  const auto a = link(), b = link();
  EXPECT_EQ(b->talk(take(1, 1), soon()).kind, Kind::NotOpen);
  EXPECT_THROW(a->state(soon()), Unavailable);
  EXPECT_EQ(a->open(plan_, "", false, soon()), "queue batch=8 epoch_batches=50 next=0 open=");
  const QueueAnswer first = a->talk(take(0, 1), soon());
  ASSERT_EQ(first.kind, Kind::Unit);
  EXPECT_EQ(first.unit.first, 0U);
  EXPECT_EQ(first.unit.count, 4U);
  EXPECT_NE(first.life, 0U);
  EXPECT_EQ(b->talk(take(1, 2), soon()).unit.first, 4U);
  const QueueAnswer second = a->talk(take(0, 2, first.life, {{first.unit.id, 0, 3}}), soon());
  EXPECT_EQ(second.unit.first, 8U);
  EXPECT_TRUE(second.revoked.empty());
  EXPECT_EQ(b->state(soon()), "queue batch=8 epoch_batches=50 next=12 open=3-12");
}

TEST_F(QueueServiceTest, ALeaderThatComesAgainKeepsOrPutsBack) {
  const auto a = link();
  a->open(plan_, "", false, soon());
  const QueueAnswer got = a->talk(take(0, 1), soon());
  EXPECT_EQ(a->open(plan_, "", true, soon()), "queue batch=8 epoch_batches=50 next=4 open=0-4");
  EXPECT_EQ(a->talk(take(0, 2, got.life, {{got.unit.id, 0, 1}}), soon()).life, got.life);
  const std::string state = "queue batch=8 epoch_batches=50 next=30 open=7-9";
  EXPECT_EQ(a->open(plan_, state, false, soon()), state);
  const QueueAnswer after = a->talk(take(0, 1, got.life, {{got.unit.id, 0, 4}}), soon());
  EXPECT_EQ(after.revoked, (std::vector<std::uint64_t>{got.unit.id}));
  EXPECT_EQ(after.unit.first, 7U);
  EXPECT_NE(after.life, got.life);
}

TEST_F(QueueServiceTest, AnotherPlanIsAnotherQueue) {
  const auto a = link();
  a->open(plan_, "", false, soon());
  a->talk(take(0, 1), soon());
  QueuePlan other = plan_;
  other.take = 5;
  EXPECT_EQ(a->open(other, "", true, soon()), "queue batch=8 epoch_batches=50 next=0 open=");
}

TEST_F(QueueServiceTest, BadRequestsAreRefusedAndChangeNothing) {
  const auto a = link();
  a->open(plan_, "", false, soon());
  EXPECT_THROW(a->open(plan_, "queue of something", false, soon()), DataLoss);
  EXPECT_THROW(a->open({.epoch_batches = 0}, "", false, soon()), InvalidArgument);
  EXPECT_THROW(a->talk(take(2, 1), soon()), InvalidArgument);
  EXPECT_THROW(a->talk(take(0, 1, 0, std::vector<HeldUnit>(5000)), soon()), InvalidArgument);
  EXPECT_THROW(link(1, "")->open(plan_, "", false, soon()), InvalidArgument);
  EXPECT_THROW(link(1, "other")->talk(take(0, 1), soon()), InvalidArgument);
  EXPECT_EQ(a->talk(take(0, 1), soon()).unit.first, 0U);
}

TEST_F(QueueServiceTest, AJobThatIsStartedAgainLeavesItsFormerWorkersBehind) {
  const auto old = link(1), fresh = link(2);
  old->open(plan_, "", false, soon());
  old->talk(take(0, 1), soon());
  EXPECT_EQ(fresh->talk(take(0, 1), soon()).kind, Kind::NotOpen);
  fresh->open(plan_, "", true, soon());
  EXPECT_EQ(fresh->talk(take(0, 2), soon()).unit.first, 0U);
  EXPECT_THROW(old->talk(take(0, 2), soon()), Unavailable);
  EXPECT_THROW(old->open(plan_, "", false, soon()), Unavailable);
}

TEST_F(QueueServiceTest, AServerThatIsGoneIsNamedAtTheDeadline) {
  const auto a = link();
  const std::string address = cluster_.server(0).grpc_address();
  cluster_.stop_server(0);
  try {
    a->talk(take(0, 1), WaitContext::with_timeout(std::chrono::milliseconds(200)));
    FAIL() << "nobody was there";
  } catch (const DeadlineExceeded& error) {
    EXPECT_NE(error.message().find(address), std::string::npos) << error.message();
  }
}

TEST(QueueServiceSecurityTest, AStrangerWithoutTheTokenTakesNothing) {
  comm::Security security;
  security.token = comm::JobToken("a token of this test alone", "test");
  Cluster cluster({.servers = 1, .workers = 1, .security = security});
  const auto own = make_queue_link({cluster.server(0).grpc_address(), "test", 1, security});
  own->open({.epoch_batches = 5, .total = 5}, "", false, soon());
  const auto stranger = make_queue_link({cluster.server(0).grpc_address(), "test", 1, {}});
  EXPECT_ANY_THROW(stranger->talk({.worker = 0, .session = 1, .number = 1, .held = {}, .wants = true},
                                  WaitContext::with_timeout(std::chrono::seconds(1))));
  EXPECT_EQ(own->state(soon()), "queue batch=1 epoch_batches=5 next=0 open=");
}

}  // namespace
}  // namespace braid::ps
