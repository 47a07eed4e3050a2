// Workers whose sessions meet in collectives: what they share, and what is said of one that is missing.
#include "worker/session/session_peers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "base/error.h"
#include "engine/builder/graph_builder.h"
#include "engine/import/import.h"
#include "launch/port_reservation.h"
#include "proto/graph.pb.h"
#include "tests/support/message_of.h"
#include "worker/session/graph_session.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

Tensor vector_of(std::vector<float> values) {
  return Tensor::from<float>(Shape{static_cast<std::int64_t>(values.size())}, values);
}

class SessionPeersTest : public testing::Test {
 protected:
  std::string cluster() const { return "worker=" + ports_.addresses()[0] + "," + ports_.addresses()[1]; }

  /// On each of two workers, in threads.
  template <class Do>
  void on_two(Do act) {
    std::array<std::thread, 2> threads;
    for (int rank = 0; rank < 2; ++rank)
      threads[static_cast<std::size_t>(rank)] = std::thread([&, rank] {
        auto peers = std::make_shared<SessionPeers>(cluster(), "worker:" + std::to_string(rank), seconds(30));
        act(peers, rank);
        peers->barrier();
      });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  launch::PortReservation ports_{2};
};

TEST_F(SessionPeersTest, SessionsOfTwoWorkersSumWhatTheyHave) {
  register_strategy_ops();
  std::array<std::vector<float>, 2> sums;
  on_two([&](const std::shared_ptr<SessionPeers>& peers, int rank) {
    EXPECT_EQ(peers->rank(), rank);
    EXPECT_EQ(peers->world(), 2);
    GraphBuilder b;
    const Output x = b.placeholder("x", DType::Float32, {2});
    b.op("braid.AllReduce", {x}, {{"world", std::int64_t{2}}}, "sum");
    GraphSessionOptions options;
    options.peers = peers;
    GraphSession session(options);
    const Graph graph = import_graph(b.graph());
    GraphRun run{{"sum"}, {}, {}};
    run.feeds.emplace_back("x", vector_of({1.0F + static_cast<float>(rank), 10.0F}));
    const Tensor sum = session.run(graph, run)[0];
    sums[static_cast<std::size_t>(rank)] = {sum.data<float>().begin(), sum.data<float>().end()};
  });
  EXPECT_THAT(sums[0], testing::ElementsAre(3, 20));
  EXPECT_EQ(sums[0], sums[1]);
}

TEST_F(SessionPeersTest, TheLeadersValueBecomesEverybodys) {
  on_two([&](const std::shared_ptr<SessionPeers>& peers, int rank) {
    const Tensor mine = vector_of({static_cast<float>(rank), 5.0F});
    const Tensor shared = peers->broadcast(mine);
    EXPECT_EQ(shared.data<float>()[0], 0.0F);
    EXPECT_EQ(mine.data<float>()[0], static_cast<float>(rank)) << "a copy";
  });
}

TEST_F(SessionPeersTest, OneThatDoesNotComeIsNamedByTheDeadline) {
  try {
    SessionPeers peers(cluster(), "worker:0", std::chrono::milliseconds(300));
    FAIL() << "alone";
  } catch (const DeadlineExceeded& error) {
    EXPECT_THAT(error.message(), HasSubstr("1"));
  }
}

TEST_F(SessionPeersTest, AStopEndsTheWaitForTheOthers) {
  std::stop_source stop;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    stop.request_stop();
  });
  EXPECT_THROW(SessionPeers(cluster(), "worker:0", seconds(60), stop.get_token()), Cancelled);
  later.join();
}

TEST_F(SessionPeersTest, ATaskThatIsNotListedIsRefused) {
  EXPECT_THROW(SessionPeers("worker=a:1,b:2", "worker:7", seconds(1)), InvalidArgument);
  EXPECT_THROW(SessionPeers("worker=a:1,b:2;ps=c:3", "worker:0", seconds(1)), InvalidArgument);
}

}  // namespace
}  // namespace braid::worker
