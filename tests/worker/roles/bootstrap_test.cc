#include "worker/roles/bootstrap.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "comm/rendezvous/grpc_rendezvous.h"
#include "comm/transport/socket.h"
#include "comm/transport/transport.h"
#include "launch/environment.h"
#include "proto/job.pb.h"
#include "tests/support/message_of.h"

namespace braid::worker {
namespace {

using namespace std::chrono_literals;

WaitContext within_deadline() { return WaitContext::with_timeout(30s); }

launch::ClusterSpec cluster_of(const std::string& address) {
  launch::ClusterSpec cluster;
  cluster.ps[0] = address;
  cluster.worker[0] = "trainer:1";
  cluster.task = {launch::TaskType::Ps, 0};
  return cluster;
}

/// "host:port" to listen on for a task of that address, with any free port.
std::string listen_on_any_port(const std::string& address) {
  const std::string listen = listen_address(cluster_of(address));
  return listen.substr(0, listen.rfind(':')) + ":0";
}

std::string port_of(const std::string& address) { return address.substr(address.rfind(':')); }

bool loopback_speaks_ipv6() {
  try {
    comm::listen_on("[::1]:0");
    return true;
  } catch (const Unavailable&) {
    return false;
  }
}

TEST(BootstrapTest, TheDataPlaneIsReachedByEveryAddressThatAHostMayHave) {
  comm::RequestHandler handler;
  handler.on_request = [](comm::IncomingMessage message, comm::Responder responder, std::uint64_t) {
    responder.reply({message.type, {}, {}, nullptr});
  };
  for (const char* address : {"[fd00::17]:2222", "server-0.example:2222", "10.0.0.7:2222"}) {
    const auto server = comm::TransportServer::start({.listen = listen_on_any_port(address)}, handler);
    for (const std::string host : {"127.0.0.1", "[::1]"}) {
      if (host == "[::1]" && !loopback_speaks_ipv6()) continue;
      const auto channel = comm::Channel::create(host + port_of(server->address()), {});
      EXPECT_EQ(channel->call({7, {}, {}, nullptr}, {}, within_deadline()).type, 7)
          << address << " by " << host;
    }
  }
}

TEST(BootstrapTest, RanksListenForBothFamilies) {
  const auto listener = comm::listen_on(listen_on_any_port("[fd00::17]:2222"));
  for (const std::string host : {"127.0.0.1", "[::1]"}) {
    if (host == "[::1]" && !loopback_speaks_ipv6()) continue;
    std::string reason;
    EXPECT_TRUE(
        comm::connect_once(host + ":" + std::to_string(listener.port), within_deadline(), "test", reason))
        << host << ": " << reason;
  }
}

TEST(BootstrapTest, ALoopbackAddressStaysOnTheLoopback) {
  EXPECT_EQ(listen_address(cluster_of("127.0.0.1:4000")), "127.0.0.1:4000");
  EXPECT_EQ(listen_address(cluster_of("[::1]:4000")), "[::1]:4000");
}

TEST(BootstrapTest, AClusterOfWhichOnlyAPartIsListedIsRefusedByEveryTask) {
  for (
      const char* config :
      {R"({"sparseCluster": {"worker": {}, "ps": ["a:1"]}, "task": {"type": "ps", "index": 0}})",
       R"({"sparseCluster": {"worker": {"1": "b:1"}, "ps": ["a:1"]}, "task": {"type": "worker", "index": 1}})"}) {
    const launch::ClusterSpec cluster = launch::resolve_cluster({{"TF_CONFIG", config}}, {});
    for (const auto kind : {proto::Strategy::LOCAL, proto::Strategy::PS, proto::Strategy::ALLREDUCE}) {
      proto::Job job;
      job.mutable_strategy()->set_kind(kind);
      EXPECT_NE(message_of([&] { check_cluster(job, cluster); }).find("needs all workers and servers listed"),
                std::string::npos);
    }
  }
}

TEST(BootstrapTest, APartOfAClusterIsEnoughWhereWorkersTakePlaces) {
  proto::Job job;
  job.mutable_strategy()->set_kind(proto::Strategy::PS);
  job.mutable_strategy()->mutable_elastic()->set_max_workers(2);
  const auto message = [&](const std::string& workers, const std::string& task) {
    const std::string config =
        R"({"sparseCluster": {"worker": {)" + workers + R"(}, "ps": ["a:1"]}, "task": )" + task + "}";
    const launch::ClusterSpec cluster = launch::resolve_cluster({{"TF_CONFIG", config}}, {});
    return message_of([&] { check_cluster(job, cluster); });
  };
  EXPECT_EQ(message("", R"({"type": "ps", "index": 0})"), "nothing was thrown");
  EXPECT_EQ(message(R"("1": "b:1")", R"({"type": "worker", "index": 1})"), "nothing was thrown");
  EXPECT_NE(message(R"("2": "b:1")", R"({"type": "worker", "index": 2})").find("places for workers 0 to 1"),
            std::string::npos);
}

TEST(BootstrapTest, PeersAreNotLookedForBehindAProxy) {
  const auto server = comm::RendezvousServer::start({.listen = "127.0.0.1:0"});
  ::setenv("http_proxy", "http://127.0.0.1:9", 1);
  const auto rendezvous = comm::make_grpc_rendezvous(server->address(), {"job", 0});
  ::unsetenv("http_proxy");
  EXPECT_NO_THROW(rendezvous->set_text("key", "value", WaitContext::with_timeout(10s)));
}

}  // namespace
}  // namespace braid::worker
