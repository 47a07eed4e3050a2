// Lost connections, repeated and reordered messages, servers that stop or come back empty, workers that
// vanish.
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <future>

#include "comm/transport/transport.h"
#include "ps/client/server_link.h"
#include "ps/server/server_core.h"
#include "ps/wire.h"
#include "tests/comm/transport/tls_files.h"
#include "tests/ps/cluster.h"
#include "tests/support/eventually.h"
#include "tests/support/in_some_attempt.h"

namespace braid::ps {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

TableSet one_table(Consistency consistency, int workers) {
  TableSet set;
  set.dense = {{"w", 1000}};
  set.consistency = consistency;
  set.workers = workers;
  return set;
}

PushRequest ones(std::uint64_t step, std::uint32_t sequence = 0) {
  static const std::vector<float> gradient(1000, 1.0F);
  PushRequest push;
  push.step = step;
  push.sequence = sequence;
  push.params = {1.0F, 1.0F, step};
  push.dense = {{0, gradient}};
  return push;
}

float value(PsClient& client) {
  std::vector<float> w(1000);
  client.read_dense("w", w, soon());
  return w[17];
}

std::unique_ptr<PsClient> ready_worker(Cluster& cluster, int worker, const TableSet& set) {
  auto client = cluster.client(worker);
  client->create_tables(set, soon());
  if (worker == 0) client->set_dense("w", std::vector<float>(1000), soon());
  client->wait_initialized(soon());
  return client;
}

template <class F>
ErrorRecord error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return {e.code(), e.message()};
  }
  return {ErrorCode::Internal, "no error"};
}

/// Passes bytes on between clients and a server, and can cut all connections at once.
class Proxy {
 public:
  explicit Proxy(std::string target) : channel_(comm::Channel::create(std::move(target), {})) {
    comm::RequestHandler handler;
    handler.on_request = [this](comm::IncomingMessage message, comm::Responder responder, std::uint64_t) {
      pass(std::move(message), std::make_shared<comm::Responder>(std::move(responder)));
    };
    server_ = comm::TransportServer::start({"127.0.0.1:0"}, handler);
  }
  ~Proxy() {
    server_->stop(soon());
    channel_.reset();
  }
  /// Sends this many of the coming requests to the server, and loses their answers.
  void lose_answers(int count) { lose_ = count; }
  std::string address() const { return server_->address(); }

 private:
  void pass(comm::IncomingMessage message, std::shared_ptr<comm::Responder> responder) {
    comm::OutgoingMessage request;
    request.type = message.type;
    request.meta = message.meta;
    for (auto d : message.payload.destinations) request.payload.push_back(d);
    request.keep_alive = message.payload.keep_alive;
    const bool lose = message.type == static_cast<std::uint16_t>(MessageType::Push) && lose_.fetch_sub(1) > 0;
    channel_->call_async(
        std::move(request),
        [](const comm::IncomingHead& head) { return comm::allocate_sink(head.payload_bytes); },
        [responder, lose](comm::CallResult result) {
          if (lose) return responder->fail({ErrorCode::Unavailable, "the answer was lost"});
          if (result.error) return responder->fail(*result.error);
          comm::OutgoingMessage reply;
          reply.type = result.reply.type;
          reply.meta = std::move(result.reply.meta);
          for (auto d : result.reply.payload.destinations) reply.payload.push_back(d);
          reply.keep_alive = result.reply.payload.keep_alive;
          responder->reply(std::move(reply));
        },
        soon());
  }

  std::shared_ptr<comm::Channel> channel_;
  std::unique_ptr<comm::TransportServer> server_;
  std::atomic<int> lose_{0};
};

TEST(PsFaultTest, AServerWithoutAPlaceForItsLocalSocketServesByTcp) {
  launch::PortReservation ports(1);
  PsServer::Options options;
  options.grpc_listen = ports.addresses()[0];
  options.data_listen = "127.0.0.1:0";
  options.unix_socket = "/proc/none/braid.sock";
  const auto server = PsServer::start(options);
  PsClient::Options of_client;
  of_client.servers = {server->grpc_address()};
  of_client.job = "job";
  const auto client = PsClient::connect(of_client, soon());
  client->create_tables(one_table(Consistency::Asp, 1), soon());
  client->set_dense("w", std::vector<float>(1000, 4.0F), soon());
  EXPECT_EQ(value(*client), 4.0F);
}

TEST(PsFaultTest, APushWhoseAnswerWasLostIsRetriedAndAppliesOnce) {
  Cluster cluster({1, 1});
  Proxy proxy(cluster.server(0).data_address());
  RetryTimer timer;
  auto direct = ready_worker(cluster, 0, one_table(Consistency::Asp, 1));
  // A link of the kind that the client uses, but through the proxy, as another process of the same worker.
  auto link = std::make_shared<ServerLink>(
      std::make_unique<ControlLink>(0, cluster.server(0).grpc_address(), comm::Security()), timer);
  const Sender sender{stable_hash("test"), 1, cluster.server(0).core().instance(), 4711, 0};
  direct.reset();
  ASSERT_TRUE(eventually([&] {
    try {
      cluster.server(0).core().enter({"test", 1, 0, 1, 0, 1, 4711, "proxied"});
      return true;
    } catch (const Unavailable&) {
      return false;  // the server has yet to notice that the other one is gone
    }
  }));
  link->open(sender, comm::Channel::create(proxy.address(), {}));
  const std::vector<float> gradient(1000, 1.0F);
  std::vector<PushResult> results;
  for (std::uint64_t step = 0; step < 4; ++step) {
    proxy.lose_answers(static_cast<int>(step));
    std::promise<void> ended;
    DataCall call;
    call.type = MessageType::Push;
    call.what = "push";
    call.meta = [&](milliseconds) {
      return encode(PushHead{sender, step, 0, 1, {1.0F, 1.0F, step}, {{0, 1, 1000}}, {}});
    };
    call.payload = {std::as_bytes(std::span(gradient))};
    call.wait = soon();
    call.done = [&](ErrorPtr error, const ReplyHead& reply) {
      EXPECT_EQ(error, nullptr);
      results.push_back(reply.result);
      ended.set_value();
    };
    link->call(std::move(call));
    ended.get_future().wait();
  }
  EXPECT_EQ(results, (std::vector<PushResult>{PushResult::Applied, PushResult::Duplicate,
                                              PushResult::Duplicate, PushResult::Duplicate}));
  EXPECT_EQ(link->retries(), 6U);
  auto observer = cluster.client(kObserver);
  observer->create_tables(one_table(Consistency::Asp, 1), soon());
  EXPECT_EQ(value(*observer), -4.0F);
  link->close();
  timer.close();
}

TEST(PsFaultTest, RepeatedAndReorderedPushesOfAllWorkersApplyOnce) {
  constexpr int kWorkers = 2;
  constexpr std::uint64_t kSteps = 12;
  Cluster cluster({2, kWorkers});
  const TableSet set = [] {
    TableSet s = one_table(Consistency::Asp, kWorkers);
    s.dense[0].elements = 9000;
    return s;
  }();
  cluster.run_workers([&](int worker, PsClient& client) {
    client.create_tables(set, soon());
    const std::vector<float> gradient(9000, 1.0F);
    if (worker == 0) client.set_dense("w", std::vector<float>(9000), soon());
    client.wait_initialized(soon());
    std::vector<std::uint64_t> steps;
    for (std::uint64_t step = 0; step < kSteps; ++step) steps.insert(steps.end(), {step, kSteps - 1 - step});
    std::atomic<std::size_t> left = steps.size();
    std::promise<void> all;
    for (std::uint64_t step : steps) {
      PushRequest push;
      push.step = step;
      push.params = {1.0F, 1.0F, step};
      push.dense = {{0, gradient}};
      client.push_async(
          std::move(push),
          [&](const ErrorPtr& error) {
            EXPECT_EQ(error, nullptr);
            if (--left == 0) all.set_value();
          },
          soon());
    }
    all.get_future().wait();
    EXPECT_EQ(client.push_counts().applied, 2 * kSteps);
    EXPECT_EQ(client.push_counts().duplicate, 2 * kSteps);
    client.leave(soon());
  });
  auto observer = cluster.client(kObserver);
  observer->create_tables(set, soon());
  std::vector<float> w(9000);
  observer->read_dense("w", w, soon());
  EXPECT_EQ(w, std::vector<float>(9000, -static_cast<float>(kSteps * kWorkers)));
}

TEST(PsFaultTest, AWorkerThatVanishesIsNamedWithinTheDeadline) {
  in_some_attempt([&] {
    Cluster cluster({2, 2, false, milliseconds(500)});
    const TableSet set = one_table(Consistency::Bsp, 2);
    auto chief = ready_worker(cluster, 0, set);
    auto other = ready_worker(cluster, 1, set);
    for (std::uint64_t step = 0; step < 3; ++step) {
      chief->push(ones(step), soon());
      other->push(ones(step), soon());
    }
    chief->push(ones(3), soon());
    const auto begin = std::chrono::steady_clock::now();
    other.reset();
    std::vector<float> w(1000);
    const ErrorRecord error = error_of([&] { chief->pull({{{0, w}}, {}, 4, true}, soon()); });
    const auto took = std::chrono::steady_clock::now() - begin;
    EXPECT_EQ(error.code, ErrorCode::Unavailable);
    EXPECT_THAT(error.message, HasSubstr("worker 1 (127.0.0.1:"));
    EXPECT_THAT(error.message, HasSubstr("lost: its connection closed"));
    EXPECT_THAT(error.message, HasSubstr("round 3 of table 'w' waits for it"));
    EXPECT_LT(took, seconds(10));
  });
}

TEST(PsFaultTest, AspAndLeaversGoOn) {
  Cluster cluster({1, 2, false, milliseconds(300)});
  {
    const TableSet set = one_table(Consistency::Asp, 2);
    auto chief = ready_worker(cluster, 0, set);
    auto other = ready_worker(cluster, 1, set);
    other->push(ones(0), soon());
    other.reset();
    std::this_thread::sleep_for(milliseconds(400));
    for (std::uint64_t step = 0; step < 3; ++step) chief->push(ones(step), soon());
    EXPECT_EQ(value(*chief), -4.0F);
  }
  Cluster bsp({1, 2, false, milliseconds(300)});
  const TableSet set = one_table(Consistency::Bsp, 2);
  auto chief = ready_worker(bsp, 0, set);
  auto other = ready_worker(bsp, 1, set);
  chief->push(ones(0), soon());
  other->push(ones(0), soon());
  other->leave(soon());
  other.reset();
  for (std::uint64_t step = 1; step < 4; ++step) {
    std::vector<float> w(1000);
    chief->pull({{{0, w}}, {}, step, true}, soon());
    chief->push(ones(step), soon());
  }
  std::vector<float> w(1000);
  chief->pull({{{0, w}}, {}, 4, true}, soon());
  EXPECT_EQ(w[0], -5.0F);
}

TEST(PsFaultTest, AServerThatStoppedIsNamedAtTheCallsDeadline) {
  in_some_attempt([&] {
    Cluster cluster({2, 1});
    TableSet set = one_table(Consistency::Asp, 1);
    set.dense[0].elements = 9000;
    auto client = cluster.client(0);
    client->create_tables(set, soon());
    client->set_dense("w", std::vector<float>(9000), soon());
    const std::string address = cluster.server(1).grpc_address();
    cluster.stop_server(1);
    std::vector<float> w(9000);
    const auto begin = std::chrono::steady_clock::now();
    const ErrorRecord error = error_of([&] {
      client->pull({{{0, w}}, {}, 0, true}, WaitContext::with_timeout(milliseconds(700)));
    });
    const auto took = std::chrono::steady_clock::now() - begin;
    EXPECT_EQ(error.code, ErrorCode::Unavailable);
    EXPECT_THAT(error.message, HasSubstr("server 1 (" + address + ") lost: "));
    EXPECT_GE(took, milliseconds(650)) << "it is tried again until the deadline";
    EXPECT_LT(took, seconds(10));
  });
}

TEST(PsFaultTest, AWorkerThatIsLateForASilentServersSakeIsNamedWithThatServer) {
  in_some_attempt([&] {
    Cluster cluster({2, 2, false, milliseconds(500)});
    TableSet set = one_table(Consistency::Bsp, 2);
    set.dense[0].elements = 9000;
    auto chief = cluster.client(0), other = cluster.client(1);
    for (PsClient* client : {chief.get(), other.get()}) client->create_tables(set, soon());
    chief->set_dense("w", std::vector<float>(9000), soon());
    const std::string address = cluster.server(1).grpc_address();
    cluster.stop_server(1);
    std::vector<float> w(9000);
    const ErrorRecord error = error_of([&] {
      other->pull({{{0, w}}, {}, 1, true}, WaitContext::with_timeout(milliseconds(900)));
    });
    EXPECT_EQ(error.code, ErrorCode::Unavailable);
    EXPECT_THAT(error.message, HasSubstr("server 1 (" + address + ") has been silent for "));
    EXPECT_THAT(error.message, HasSubstr("server 0: worker 0 (127.0.0.1:"));
  });
}

TEST(PsFaultTest, AServerThatCameBackEmptyRefusesTheOldInstance) {
  Cluster cluster({1, 1});
  auto client = ready_worker(cluster, 0, one_table(Consistency::Asp, 1));
  client->push(ones(0), soon());
  cluster.restart_server(0);
  const auto begin = std::chrono::steady_clock::now();
  const ErrorRecord error = error_of([&] { client->push(ones(1), soon()); });
  EXPECT_EQ(error.code, ErrorCode::Unavailable);
  EXPECT_THAT(error.message, HasSubstr("was started again"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(20)) << "known long before the deadline";
  EXPECT_EQ(cluster.server(0).core().counters()->value(Count::PushesApplied), 0U);
}

// On the thread that answers, the end of the last channel of a process would have to join this very thread.
TEST(PsFaultTest, ALinkThatIsLetGoWhileItsAnswerRunsEndsOnTheThreadThatClosesIt) {
  auto cluster = std::make_unique<Cluster>(Cluster::Shape{1, 1});
  RetryTimer timer;
  auto link = std::make_shared<ServerLink>(
      std::make_unique<ControlLink>(0, cluster->server(0).grpc_address(), comm::Security()), timer);
  const launch::PortReservation nobody(1);
  comm::Channel::Options channel;
  channel.connect_timeout = milliseconds(100);
  link->open({stable_hash("test"), 1, cluster->server(0).core().instance() + 1, 4711, 0},
             comm::Channel::create(nobody.addresses()[0], channel));
  std::promise<ErrorPtr> answered;
  auto answer = answered.get_future();
  DataCall call;
  call.what = "push";
  call.meta = [](milliseconds) { return Meta(); };
  call.wait = soon();
  call.done = [&](const ErrorPtr& error, const ReplyHead&) {
    answered.set_value(error);
    std::this_thread::sleep_for(milliseconds(500));
  };
  link->call(std::move(call));
  const ErrorPtr error = answer.get();
  ASSERT_TRUE(error);
  EXPECT_THAT(error->message, HasSubstr("was started again"));
  const std::weak_ptr<ServerLink> watched = link;
  link->close();
  link.reset();
  EXPECT_TRUE(watched.expired());
  cluster.reset();  // whose server is the other one that keeps gRPC's threads
  EXPECT_TRUE(eventually([&] { return watched.expired(); }));
}

TEST(PsFaultTest, ConnectNamesTheServersThatAreMissing) {
  Cluster cluster({1, 1});
  PsClient::Options options;
  options.servers = {cluster.server(0).grpc_address(), "127.0.0.1:1", "127.0.0.1:2"};
  options.job = "test";
  const ErrorRecord wrong = error_of([&] { PsClient::connect(options, soon()); });
  EXPECT_EQ(wrong.code, ErrorCode::InvalidArgument);
  EXPECT_THAT(wrong.message, HasSubstr("takes this for server 0 of 3, but it is server 0 of 1"));
  options.servers = {"127.0.0.1:1", "127.0.0.1:2"};
  const ErrorRecord missing =
      error_of([&] { PsClient::connect(options, WaitContext::with_timeout(milliseconds(600))); });
  EXPECT_EQ(missing.code, ErrorCode::Unavailable);
  EXPECT_THAT(missing.message, HasSubstr("no answer from server 0 (127.0.0.1:1: Connection refused), server "
                                         "1 (127.0.0.1:2: Connection refused) before the deadline"));
}

TEST(PsFaultTest, ConnectWaitsForAServerThatComesLater) {
  const launch::PortReservation port(1);
  const std::string& address = port.addresses()[0];
  PsClient::Options options;
  options.servers = {address};
  options.job = "test";
  auto client = std::async(std::launch::async, [&] { return PsClient::connect(options, soon()); });
  std::this_thread::sleep_for(milliseconds(300));
  PsServer::Options server_options;
  server_options.grpc_listen = address;
  server_options.data_listen = "127.0.0.1:0";
  auto server = PsServer::start(server_options);
  EXPECT_NE(client.get(), nullptr);
}

TEST(PsFaultTest, ASecondServerOnAnAddressIsRefused) {
  Cluster cluster({1, 1});
  PsServer::Options options;
  options.grpc_listen = cluster.server(0).grpc_address();
  options.data_listen = "127.0.0.1:0";
  const ErrorRecord error = error_of([&] { PsServer::start(options); });
  EXPECT_EQ(error.code, ErrorCode::Unavailable);
  EXPECT_THAT(error.message, HasSubstr(cluster.server(0).grpc_address()));
}

TEST(PsFaultTest, BothPlanesAskForACertificateOfTheJob) {
  const comm::TlsFiles ours, theirs;
  Cluster cluster({1, 1, false, seconds(30), {ours.options()}});
  auto client = ready_worker(cluster, 0, one_table(Consistency::Asp, 1));
  client->push(ones(0), soon());
  EXPECT_EQ(value(*client), -1.0F);

  PsClient::Options options;
  options.servers = {cluster.server(0).grpc_address()};
  options.job = "test";
  for (const comm::TlsOptions& stranger : {theirs.options(), comm::TlsOptions()}) {
    options.security.tls = stranger;
    const ErrorRecord error =
        error_of([&] { PsClient::connect(options, WaitContext::with_timeout(milliseconds(600))); });
    EXPECT_EQ(error.code, ErrorCode::InvalidArgument) << error.message;
    EXPECT_THAT(error.message, HasSubstr(cluster.server(0).grpc_address()));
  }
  auto plain = comm::Channel::create(cluster.server(0).data_address(), {});
  EXPECT_EQ(error_of([&] {
              plain->call({4, encode(Sender()), {}, nullptr}, {}, soon());
            }).code,
            ErrorCode::Unavailable)
      << "the data plane too";
}

TEST(PsFaultTest, AStopRequestEndsParkedPullsAndTheClientsEndEndsTheRest) {
  Cluster cluster({2, 2});
  auto client = ready_worker(cluster, 0, one_table(Consistency::Bsp, 2));
  std::vector<float> w(1000);
  std::stop_source stop;
  std::promise<ErrorPtr> stopped, closed;
  client->pull_async(
      {{{0, w}}, {}, 5, true}, [&](ErrorPtr e) { stopped.set_value(std::move(e)); },
      WaitContext::with_timeout(seconds(60), stop.get_token()));
  client->pull_async(
      {{{0, w}}, {}, 5, true}, [&](ErrorPtr e) { closed.set_value(std::move(e)); }, soon());
  stop.request_stop();
  EXPECT_EQ(stopped.get_future().get()->code, ErrorCode::Cancelled);
  client.reset();
  EXPECT_EQ(closed.get_future().get()->code, ErrorCode::Cancelled);
}

TEST(PsFaultTest, WhyTheLeaderCannotBeginIsHeardByEverybodyAtOnce) {
  const TableSet set = one_table(Consistency::Bsp, 3);
  Cluster cluster({.servers = 2, .workers = 3});
  auto leader = cluster.client(0), waiting = cluster.client(1);
  waiting->create_tables(set, soon());
  auto parked =
      std::async(std::launch::async, [&] { return error_of([&] { waiting->wait_initialized(soon()); }); });
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(cluster.server(0).core().refusal(), nullptr);
  const ErrorRecord nothing{static_cast<ErrorCode>(0), "would be heard as a success"};
  EXPECT_THAT(error_of([&] { leader->refuse(nothing, soon()); }).message, HasSubstr("there is no error 0"));
  leader->refuse({ErrorCode::InvalidArgument, "the directory is used"}, soon());
  ASSERT_EQ(parked.wait_for(seconds(10)), std::future_status::ready) << "it waits for its deadline";
  const ErrorRecord heard = parked.get();
  EXPECT_EQ(heard.code, ErrorCode::InvalidArgument);
  EXPECT_EQ(heard.message, "the directory is used");
  EXPECT_FALSE(cluster.server(1).core().all_heard_refusal());
  const ErrorRecord late = error_of([&] { cluster.client(2); });
  EXPECT_EQ(late.code, ErrorCode::InvalidArgument);
  EXPECT_EQ(late.message, "the directory is used");
  EXPECT_EQ(error_of([&] { waiting->create_tables(set, soon()); }).message, "the directory is used");
  EXPECT_TRUE(cluster.server(0).core().all_heard_refusal());
  EXPECT_EQ(cluster.server(0).core().refusal()->message, "the directory is used");
}

TEST(PsFaultTest, AJobThatHasStartedIsRefusedByNobody) {
  const TableSet set = one_table(Consistency::Bsp, 1);
  Cluster cluster({.servers = 1, .workers = 2});
  TableSet both = set;
  both.workers = 2;
  auto leader = cluster.client(0), other = cluster.client(1);
  EXPECT_THAT(error_of([&] {
                other->refuse({ErrorCode::InvalidArgument, "no"}, soon());
              }).message,
              HasSubstr("worker 1 does not lead job 'test'"));
  leader->create_tables(both, soon());
  leader->set_dense("w", std::vector<float>(1000), soon());
  leader->wait_initialized(soon());
  EXPECT_THAT(error_of([&] {
                leader->refuse({ErrorCode::InvalidArgument, "no"}, soon());
              }).message,
              HasSubstr("job 'test' has started"));
  EXPECT_EQ(cluster.server(0).core().refusal(), nullptr);
}

TEST(PsFaultTest, ShutdownEndsTheServersWait) {
  Cluster cluster({2, 1});
  auto client = ready_worker(cluster, 0, one_table(Consistency::Asp, 1));
  EXPECT_THROW(cluster.server(0).wait_shutdown(WaitContext::with_timeout(milliseconds(10))),
               DeadlineExceeded);
  client->shutdown(soon());
  EXPECT_NO_THROW(cluster.server(0).wait_shutdown(soon()));
  EXPECT_NO_THROW(cluster.server(1).wait_shutdown(soon()));
}

}  // namespace
}  // namespace braid::ps
