// Who does not belong to the job, and who asks for more than it may: over real sockets, with the real workers
// at work.
#include <gmock/gmock.h>

#include "comm/transport/transport.h"
#include "ps/server/control_service.h"
#include "ps/server/server_core.h"
#include "ps/wire.h"
#include "tests/comm/transport/raw_socket.h"
#include "tests/ps/cluster.h"
#include "tests/support/eventually.h"
#include "tests/support/message_of.h"

namespace braid::ps {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

const comm::JobToken kToken("the token of this job alone", "test");
const comm::JobToken kOther("the token of somebody else", "test");

constexpr std::int64_t kElements = 9000;

TableSet one_table(int workers, Consistency consistency = Consistency::Bsp) {
  TableSet set;
  set.dense = {{"w", kElements}};
  set.consistency = consistency;
  set.workers = workers;
  return set;
}

Cluster::Shape with_token(int servers, int workers, bool unix_socket = false) {
  return {servers, workers, unix_socket, seconds(30), {{}, kToken}};
}

std::unique_ptr<PsClient> started_worker(Cluster& cluster, int worker, const TableSet& set) {
  auto client = cluster.client(worker);
  client->create_tables(set, soon());
  if (worker == 0) client->set_dense("w", std::vector<float>(kElements), soon());
  if (worker == 0 || client->started(soon())) client->wait_initialized(soon());
  return client;
}

PsClient::Options stranger(Cluster& cluster, const comm::Security& security, int worker = 0,
                           int workers = 1) {
  PsClient::Options options;
  options.servers = {cluster.server(0).grpc_address()};
  options.job = "test";
  options.worker = worker;
  options.workers = workers;
  options.incarnation = 1;
  options.security = security;
  return options;
}

/// Trains, while `meanwhile` runs on a thread of its own, and gives the values.
std::vector<float> train(Cluster& cluster, int workers, std::uint64_t steps,
                         const std::function<void(std::stop_token)>& meanwhile = {}) {
  std::vector<float> values(kElements);
  std::jthread other;
  if (meanwhile) other = std::jthread(meanwhile);
  cluster.run_workers([&](int worker, PsClient& client) {
    client.create_tables(one_table(workers), soon());
    if (worker == 0) client.set_dense("w", std::vector<float>(kElements, 0.5F), soon());
    client.wait_initialized(soon());
    std::vector<float> w(kElements);
    for (std::uint64_t step = 0; step < steps; ++step) {
      PullRequest pull;
      pull.dense = {{0, w}};
      pull.min_version = step;
      client.pull(std::move(pull), soon());
      auto gradient = dense_gradient("w", worker, step, kElements);
      for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] += 0.01F * w[i];
      PushRequest push;
      push.step = step;
      push.params = {0.1F, 0.5F, step};
      push.dense = {{0, gradient}};
      client.push(std::move(push), soon());
    }
    if (worker != 0) return;
    PullRequest last;
    last.dense = {{0, values}};
    last.min_version = steps;
    client.pull(std::move(last), soon());
  });
  return values;
}

TEST(PsStrangerTest, WithoutTheTokenNobodyIsServed) {
  for (const bool unix_socket : {false, true}) {
    Cluster cluster(with_token(1, 1, unix_socket));
    auto client = started_worker(cluster, 0, one_table(1));
    for (const comm::Security& security : {comm::Security{{}, kOther}, comm::Security{}}) {
      const auto began = std::chrono::steady_clock::now();
      EXPECT_THAT(
          message_of<InvalidArgument>([&] { PsClient::connect(stranger(cluster, security), soon()); }),
          AllOf(HasSubstr(cluster.server(0).grpc_address()), HasSubstr("token")));
      EXPECT_LT(std::chrono::steady_clock::now() - began, seconds(20)) << "at once, not at the deadline";
      auto data = comm::Channel::create(cluster.server(0).data_address(), {.security = security});
      EXPECT_THAT(message_of<Unavailable>([&] {
                    data->call({4, encode(Sender()), {}, nullptr}, {}, soon());
                  }),
                  HasSubstr("token"));
    }
    EXPECT_EQ(cluster.server(0).job_end(), std::nullopt);
    EXPECT_EQ(client->stats(soon())[0].counters.at("requests_refused"), 0U) << "none came so far";
  }
}

TEST(PsStrangerTest, CheckpointsGoOnlyIntoTheJobsDirectoryAndComeFromThere) {
  Cluster cluster(with_token(1, 2));
  auto leader = started_worker(cluster, 0, one_table(2));
  auto worker = started_worker(cluster, 1, one_table(2));
  const std::filesystem::path inside = scratch_path("-inside");
  std::filesystem::create_directories(inside);
  const auto outside =
      std::filesystem::path(testing::TempDir()).parent_path().parent_path() / "braid-outside";
  for (const auto& directory : {outside, std::filesystem::path("/etc"), inside / ".." / ".." / ".." / "etc",
                                std::filesystem::path(testing::TempDir())}) {
    EXPECT_THAT(message_of<InvalidArgument>([&] { leader->checkpoint(directory, 0, soon()); }),
                HasSubstr("is not inside of"));
    EXPECT_THAT(message_of<InvalidArgument>([&] { leader->restore(directory, soon()); }),
                HasSubstr("is not inside of"));
  }
  EXPECT_THAT(message_of<InvalidArgument>([&] { worker->checkpoint(inside, 0, soon()); }),
              HasSubstr("worker 1 asks for what only worker 0 may"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { worker->restore(inside, soon()); }),
              HasSubstr("worker 1 asks for what only worker 0 may"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { worker->shutdown(soon()); }),
              HasSubstr("worker 1 asks for what only worker 0 may"));
  EXPECT_EQ(cluster.server(0).job_end(), std::nullopt);
  EXPECT_EQ(leader->checkpoint(inside, 0, soon()).size(), 1U);
  std::filesystem::remove_all(inside);
}

TEST(PsStrangerTest, AServerWhoseJobHasNoDirectoryTakesNoCheckpoints) {
  PsServer::Options options;
  options.grpc_listen = options.data_listen = "127.0.0.1:0";
  const auto server = PsServer::start(options);
  PsClient::Options mine;
  mine.servers = {server->grpc_address()};
  mine.job = "test";
  const auto client = PsClient::connect(mine, soon());
  client->create_tables(one_table(1), soon());
  client->set_dense("w", std::vector<float>(kElements), soon());
  EXPECT_THAT(message_of<InvalidArgument>([&] { client->checkpoint(testing::TempDir() + "x", 0, soon()); }),
              HasSubstr("names no checkpoint.directory"));
}

TEST(PsStrangerTest, AWorkerThatIsAliveIsNotReplaced) {
  Cluster cluster(with_token(1, 1));
  auto client = started_worker(cluster, 0, one_table(1));
  EXPECT_THAT(
      message_of<Unavailable>([&] {
        PsClient::connect(stranger(cluster, {{}, kToken}), WaitContext::with_timeout(milliseconds(700)));
      }),
      HasSubstr("is alive, but another process"));
  const std::vector<float> ones(kElements, 1.0F);
  PushRequest push;
  push.params = {1.0F, 1.0F, 0};
  push.dense = {{0, ones}};
  EXPECT_NO_THROW(client->push(std::move(push), soon())) << "it is undisturbed";
  client.reset();
  EXPECT_NO_THROW(PsClient::connect(stranger(cluster, {{}, kToken}), soon())) << "once it is gone";
}

TEST(PsStrangerTest, APayloadForNobodyTakesNoMemory) {
  Cluster cluster({1, 1});  // loopback without a token: everybody is heard
  auto client = started_worker(cluster, 0, one_table(1));
  PushHead head;
  head.sender = {1, 1, 4711, 1, 0};
  head.dense = {{0, 1, std::uint64_t{75} << 20}};
  auto data = comm::Channel::create(cluster.server(0).data_address(), {});
  const auto before = comm::resident_bytes();
  comm::OutgoingMessage message;
  message.type = static_cast<std::uint16_t>(MessageType::Push);
  message.meta = encode(head);
  const std::vector<std::byte> piece(1 << 20);
  for (int i = 0; i < 300; ++i) message.payload.push_back(piece);
  EXPECT_THAT(message_of<Error>([&] { data->call(std::move(message), {}, soon()); }),
              HasSubstr("the message is for"));
  EXPECT_LT(comm::resident_bytes(), before + (100U << 20));
}

TEST(PsStrangerTest, TenThousandStrangersAtEachPortDoNotChangeABit) {
  constexpr std::uint64_t kSteps = 300;
  std::vector<float> undisturbed;
  {
    Cluster cluster({1, 2});
    undisturbed = train(cluster, 2, kSteps);
  }
  for (const bool has_token : {true, false}) {
    Cluster cluster(has_token ? with_token(1, 2) : Cluster::Shape{1, 2});
    const auto before = comm::resident_bytes();
    std::atomic<int> said{0};
    const auto values = train(cluster, 2, kSteps, [&](const std::stop_token&) {
      std::minstd_rand random(3);
      for (; said < 20'000; ++said) {
        const comm::RawSocket socket(said % 2 == 0 ? cluster.server(0).grpc_address()
                                                   : cluster.server(0).data_address());
        socket.say(comm::some_bytes(random));
      }
    });
    EXPECT_EQ(said, 20'000);
    EXPECT_EQ(values, undisturbed);
    EXPECT_LT(comm::resident_bytes(), before + (256U << 20));
  }
}

TEST(PsStrangerTest, TheOtherServersHearOfALostOne) {
  Cluster cluster(with_token(2, 1));
  TableSet set = one_table(1, Consistency::Asp);
  auto client = started_worker(cluster, 0, set);
  EXPECT_EQ(client->report_lost_server(soon()), "") << "all are there";
  EXPECT_EQ(cluster.server(0).job_end(), std::nullopt);
  const std::string address = cluster.server(1).grpc_address();
  cluster.stop_server(1);
  EXPECT_EQ(client->report_lost_server(soon()), "server 1 (" + address + ")");
  EXPECT_EQ(cluster.server(0).job_end(), JobEnd::Lost);
  EXPECT_NO_THROW(cluster.server(0).wait_shutdown(soon()));
  std::vector<float> w(kElements);
  EXPECT_THAT(
      message_of<Unavailable>([&] { client->read_dense("w", w, WaitContext::with_timeout(seconds(2))); }),
      HasSubstr("server"));
}

TEST(PsStrangerTest, AServerThatCameBackEmptyIsALostOne) {
  Cluster cluster(with_token(2, 1));
  auto client = started_worker(cluster, 0, one_table(1, Consistency::Asp));
  cluster.restart_server(1);
  EXPECT_THAT(client->report_lost_server(soon()), HasSubstr("server 1 ("));
  EXPECT_EQ(cluster.server(0).job_end(), JobEnd::Lost);
}

TEST(PsStrangerTest, AStopBeforeTheStartEndsTheOthersWait) {
  Cluster cluster(with_token(1, 2));
  auto leader = cluster.client(0);
  auto worker = cluster.client(1);
  worker->create_tables(one_table(2), soon());
  std::jthread stopping([&] {
    std::this_thread::sleep_for(milliseconds(100));
    leader->stop_before_start(soon());
  });
  EXPECT_THAT(message_of<Cancelled>([&] { worker->wait_initialized(soon()); }),
              HasSubstr("worker 0 was asked to stop before the job had its initial values"));
  EXPECT_TRUE(eventually([&] { return cluster.server(0).job_end() == JobEnd::Terminated; }, seconds(10)))
      << "the others hear of it first";
}

TEST(PsStrangerTest, AStopAfterTheStartLeavesTheJobAlone) {
  Cluster cluster(with_token(1, 1));
  auto client = started_worker(cluster, 0, one_table(1));
  client->stop_before_start(soon());
  EXPECT_EQ(cluster.server(0).job_end(), std::nullopt);
  std::vector<float> w(kElements);
  EXPECT_NO_THROW(client->read_dense("w", w, soon()));
}

}  // namespace
}  // namespace braid::ps
