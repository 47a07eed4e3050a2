// One suite on the rendezvous of this process and on the one over gRPC, plain and with TLS.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "comm/membership/attendance.h"
#include "comm/rendezvous/grpc_rendezvous.h"
#include "comm/rendezvous/in_process.h"
#include "launch/port_reservation.h"
#include "tests/comm/kept_log.h"
#include "tests/comm/transport/raw_socket.h"
#include "tests/comm/transport/tls_files.h"
#include "tests/comm/transport/transport_fixture.h"
#include "tests/support/in_some_attempt.h"

namespace braid::comm {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

enum class Kind { InProcess, Grpc, TlsGrpc, TokenGrpc };

std::string name_of(const testing::TestParamInfo<Kind>& info) {
  const char* names[] = {"InProcess", "Grpc", "TlsGrpc", "TokenGrpc"};
  return names[static_cast<int>(info.param)];
}

class RendezvousTest : public testing::TestWithParam<Kind> {
 protected:
  RendezvousTest() {
    if (GetParam() == Kind::InProcess) return;
    static TlsFiles files;
    if (GetParam() == Kind::TlsGrpc) security_.tls = files.options();
    if (GetParam() == Kind::TokenGrpc) security_.token = JobToken::random();
    server_ = RendezvousServer::start({.listen = "127.0.0.1:0", .security = security_});
  }
  std::shared_ptr<RendezvousStore> store() { return server_ ? server_->store() : store_; }
  std::unique_ptr<Rendezvous> make(std::uint64_t generation = 1, const std::string& job = "job") {
    if (!server_) return make_in_process_rendezvous(store_, {job, generation});
    return make_grpc_rendezvous(server_->address(), {job, generation}, security_);
  }
  Security security_;
  std::unique_ptr<RendezvousServer> server_;
  std::shared_ptr<RendezvousStore> store_ = std::make_shared<RendezvousStore>();
};

TEST_P(RendezvousTest, GetsWhatWasSet) {
  auto a = make(), b = make();
  a->set_text("key", "one", within(60s));
  EXPECT_EQ(b->get_text("key", within(60s)), "one");
  a->set_text("key", std::string("t\0o", 3), within(60s));
  EXPECT_EQ(b->get_text("key", within(60s)), std::string("t\0o", 3));
  a->set_text("empty", "", within(60s));
  EXPECT_EQ(b->get_text("empty", within(60s)), "");
}

TEST_P(RendezvousTest, GetWaitsForSet) {
  auto a = make(), b = make();
  std::vector<std::jthread> waiting;
  std::atomic<int> got{0};
  for (int i = 0; i < 20; ++i)
    waiting.emplace_back([&] { got += b->get_text("late", within(60s)) == "value"; });
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(got, 0);  // and a get that comes later than this finds the value
  a->set_text("late", "value", within(60s));
  waiting.clear();
  EXPECT_EQ(got, 20);
}

TEST_P(RendezvousTest, AKeyThatIsNeverSetIsNamedAtTheDeadline) {
  auto started = std::chrono::steady_clock::now();
  EXPECT_THAT(error_of<DeadlineExceeded>([&] { make()->get("nobody/sets/this", within(100ms)); }),
              HasSubstr("'nobody/sets/this'"));
  EXPECT_LT(std::chrono::steady_clock::now() - started, 20s);
}

TEST_P(RendezvousTest, AStopRequestEndsAWait) {
  std::stop_source source;
  std::jthread stopper([&] {
    std::this_thread::sleep_for(50ms);
    source.request_stop();
  });
  EXPECT_THAT(
      error_of<Cancelled>([&] { make()->get("key", WaitContext::with_timeout(60s, source.get_token())); }),
      HasSubstr("cancelled"));
}

TEST_P(RendezvousTest, JobsAndGenerationsAreApart) {
  make(1, "a")->set_text("key", "of a", within(60s));
  make(1, "b")->set_text("key", "of b", within(60s));
  EXPECT_EQ(make(1, "a")->get_text("key", within(60s)), "of a");
  auto waiting = std::jthread([&] {
    EXPECT_THAT(error_of<Unavailable>([&] { make(1, "a")->get("never", within(60s)); }),
                HasSubstr("generation 1 of job 'a' is over: generation 2 has begun"));
  });
  ASSERT_TRUE(eventually([&] { return store()->waits() == 1; }));
  make(2, "a")->set_text("begins", "generation 2", within(60s));
  EXPECT_THAT(error_of<DeadlineExceeded>([&] { make(2, "a")->get("key", within(200ms)); }),
              HasSubstr("'key'"))
      << "a new generation starts empty";
  EXPECT_THAT(error_of<Unavailable>([&] { make(1, "a")->set_text("key", "x", within(60s)); }),
              HasSubstr("generation 1 of job 'a' is over"));
  EXPECT_EQ(make(1, "b")->get_text("key", within(60s)), "of b");
}

TEST_P(RendezvousTest, BarriersHoldAllRanksAndMayBeUsedAgain) {
  constexpr int kRanks = 4, kRounds = 10;
  std::atomic<int> entered{0};
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.emplace_back([&, rank] {
      auto rendezvous = make();
      for (int round = 1; round <= kRounds; ++round) {
        ++entered;
        rendezvous->barrier("step", rank, kRanks, within(60s));
        EXPECT_GE(entered, round * kRanks);
      }
    });
}

TEST_P(RendezvousTest, ABarrierNamesTheMissingRanks) {
  const auto enough = std::make_unique<std::stop_source>();
  std::jthread other([&] {
    error_of<Cancelled>(
        [&] { make()->barrier("start", 3, 6, WaitContext::with_timeout(60s, enough->get_token())); });
  });
  ASSERT_TRUE(eventually([&] { return store()->waits() == 1; }));
  auto rendezvous = make();
  rendezvous->set_text("connects", "", within(60s));
  // The host is asked for them within a limit.
  in_some_attempt([&] {
    EXPECT_THAT(error_of<DeadlineExceeded>([&] { rendezvous->barrier("start", 0, 6, within(300ms)); }),
                AllOf(HasSubstr("barrier 'start'"), HasSubstr("ranks 1, 2, 4 and 5 did not come")));
  });
  EXPECT_THAT(error_of<InvalidArgument>([&] { rendezvous->barrier("start", 1, 5, within(60s)); }),
              HasSubstr("rank 1 says that there are 5 ranks, others say 6"));
  EXPECT_THAT(error_of<InvalidArgument>([&] { rendezvous->barrier("other", 5, 5, within(60s)); }),
              HasSubstr("rank 5 of 5"));
  enough->request_stop();
}

TEST_P(RendezvousTest, MembersCarryTheirAddressesAndAge) {
  auto rendezvous = make();
  rendezvous->add_member({"worker/1", 7, {{"data_address", "10.0.0.1:4000"}}}, within(60s));
  rendezvous->add_member({"ps/0", 8, {}}, within(60s));
  std::this_thread::sleep_for(60ms);
  rendezvous->heartbeat("ps/0", within(60s));
  auto members = make()->members(within(60s));
  ASSERT_EQ(members.size(), 2u);
  EXPECT_EQ(members[0].member.name, "ps/0");
  EXPECT_LE(members[0].since_heartbeat + 50ms, members[1].since_heartbeat);
  EXPECT_EQ(members[1].member.attributes.at("data_address"), "10.0.0.1:4000");
  EXPECT_EQ(members[1].member.incarnation, 7u);
  EXPECT_THAT(error_of<InvalidArgument>([&] { rendezvous->heartbeat("worker/2", within(60s)); }),
              HasSubstr("no member 'worker/2'"));
}

TEST_P(RendezvousTest, MembersThatStayAreHeldUntilTheyLeave) {
  auto rendezvous = make();
  rendezvous->add_member({"worker/1", 7, {}}, within(60s));
  auto first = rendezvous->stay("worker/1");
  EXPECT_EQ(first->state(), Presence::State::Held);
  ASSERT_TRUE(eventually([&] { return store()->stays() == 1; }));
  auto second = rendezvous->stay("worker/1");  // as after a connection that broke
  EXPECT_TRUE(eventually([&] { return first->state() == Presence::State::Ended; }));
  first.reset();
  EXPECT_EQ(second->state(), Presence::State::Held);
  second.reset();
  EXPECT_EQ(rendezvous->members(within(60s)).at(0).since_gone, std::nullopt);
}

TEST_P(RendezvousTest, OnlyMembersStay) {
  auto rendezvous = make();
  rendezvous->set_text("connects", "", within(60s));
  const auto stranger = rendezvous->stay("worker/1");
  EXPECT_TRUE(eventually([&] { return stranger->state() == Presence::State::Ended; }));
  rendezvous->add_member({"worker/1", 7, {}}, within(60s));
  const auto member = rendezvous->stay("worker/1");
  ASSERT_TRUE(eventually([&] { return store()->stays() == 1; }));
  make(2)->set_text("begins", "generation 2", within(60s));
  EXPECT_TRUE(eventually([&] { return member->state() == Presence::State::Ended; }));
}

TEST_P(RendezvousTest, ProgressTellsWhoIsBehind) {
  auto rendezvous = make();
  EXPECT_EQ(describe_laggard(rendezvous->progress(within(60s))), "");
  for (int rank : {0, 1, 2}) rendezvous->post_progress({rank, 41, 100, "all_reduce"}, within(60s));
  EXPECT_EQ(describe_laggard(make()->progress(within(60s))), "");
  rendezvous->post_progress({0, 42, 103, "barrier"}, within(60s));
  rendezvous->post_progress({2, 41, 99, "all_gather"}, within(60s));
  EXPECT_EQ(describe_laggard(make()->progress(within(60s))),
            "rank 2 is behind: step 41, 99 collectives, last all_gather; "
            "rank 0: step 42, 103 collectives, last barrier");
}

INSTANTIATE_TEST_SUITE_P(All, RendezvousTest,
                         testing::Values(Kind::InProcess, Kind::Grpc, Kind::TlsGrpc, Kind::TokenGrpc),
                         name_of);

TEST(GrpcRendezvousTest, AHostThatIsNotUpYetIsWaitedFor) {
  const launch::PortReservation port(1);
  const std::string& address = port.addresses()[0];
  std::unique_ptr<RendezvousServer> server;
  std::jthread starter([&] {
    std::this_thread::sleep_for(300ms);
    server = RendezvousServer::start({.listen = address});
  });
  auto rendezvous = make_grpc_rendezvous(address, {"job", 1});
  rendezvous->set_text("key", "value", within(60s));
  EXPECT_EQ(rendezvous->get_text("key", within(60s)), "value");
}

TEST(GrpcRendezvousTest, AHostThatNeverComesIsNamed) {
  const launch::PortReservation port(1);
  const std::string& address = port.addresses()[0];
  in_some_attempt([&] {
    auto message = error_of<DeadlineExceeded>([&] {
      make_grpc_rendezvous(address, {"job", 1})->set_text("key", "value", within(300ms));
    });
    EXPECT_THAT(message,
                HasSubstr("set 'key' at rank 0, which leads (" + address + "): deadline exceeded: "));
    EXPECT_THAT(message, HasSubstr("onnection refused"));
  });
}

TEST(GrpcRendezvousTest, StoppingTheHostEndsTheWaits) {
  auto server = RendezvousServer::start({.listen = "127.0.0.1:0"});
  auto address = server->address();
  std::vector<std::jthread> waiting;
  std::atomic<int> failed{0};
  for (int i = 0; i < 50; ++i)
    waiting.emplace_back([&] {
      // On a starved machine the server may be gone before it has said that it stops; then the deadline ends
      // the wait.
      auto message = error_of<Error>([&] {
        make_grpc_rendezvous(address, {"job", 1})->get("key", within(40s));
      });
      failed += message.find(address) != std::string::npos;
    });
  ASSERT_TRUE(eventually([&] { return server->store()->waits() == 50; }));
  auto started = std::chrono::steady_clock::now();
  server->stop(within(30s));
  EXPECT_LT(std::chrono::steady_clock::now() - started, 15s) << "before the deadlines of all of them";
  waiting.clear();
  EXPECT_EQ(failed, 50);
}

TEST(RendezvousStoreTest, FailingTheWaitsTellsAllOfThemWhy) {
  RendezvousStore store;
  std::vector<std::string> errors;
  store.get({"job", 1}, "key", [&](const ErrorPtr& error, const auto&) { errors.push_back(error->message); });
  store.barrier({"job", 2}, "start", 0, 0, 2,
                [&](const ErrorPtr& error) { errors.push_back(error->message); });
  auto other =
      store.get({"other", 1}, "key", [&](const ErrorPtr&, const auto&) { errors.push_back("cancelled"); });
  store.cancel(*other);
  EXPECT_EQ(store.waits(), 1u);
  store.fail_waits("the host stopped");
  EXPECT_EQ(store.waits(), 0u);
  EXPECT_THAT(errors, ElementsAre(HasSubstr("generation 2 has begun"), "the host stopped"));
}

TEST(RendezvousStoreTest, ABarrierThatIsOverAnswersARepeatedRequest) {
  RendezvousStore store;
  int done = 0;
  auto count = [&](const ErrorPtr& error) { done += error == nullptr; };
  for (int rank : {0, 1, 2}) store.barrier({"job", 1}, "start", 0, rank, 3, count);
  EXPECT_EQ(done, 3);
  EXPECT_FALSE(store.barrier({"job", 1}, "start", 0, 1, 3, count));  // its answer was lost on the way
  EXPECT_EQ(done, 4);
  EXPECT_TRUE(store.barrier({"job", 1}, "start", 1, 1, 3, count));
  EXPECT_EQ(done, 4);
}

TEST(GrpcRendezvousTest, TheAddressIsTakenOnlyOnce) {
  auto server = RendezvousServer::start({.listen = "127.0.0.1:0"});
  EXPECT_THAT(error_of<Unavailable>([&] { RendezvousServer::start({.listen = server->address()}); }),
              HasSubstr("cannot listen on " + server->address()));
}

TEST(GrpcRendezvousTest, StrangersAreRefused) {
  TlsFiles ours, theirs;
  const KeptLog log;
  auto server = RendezvousServer::start({.listen = "127.0.0.1:0", .security = {ours.options()}});
  auto set = [&](const TlsOptions& tls, std::chrono::milliseconds limit = 60s) {
    make_grpc_rendezvous(server->address(), {"job", 1}, {tls})->set_text("key", "value", within(limit));
  };
  EXPECT_THAT(error_of<InvalidArgument>([&] { set(theirs.options()); }),
              AllOf(HasSubstr(server->address()), HasSubstr("TLS was refused by this process"),
                    HasSubstr("certificate verify failed")));
  const auto server_says = [&](const char* why) {
    return log.comes_to_say("a connection was refused: TLS: ", why);
  };
  EXPECT_TRUE(server_says("tlsv1 alert")) << log.text();
  EXPECT_THAT(error_of<InvalidArgument>([&] { set({}); }), HasSubstr(server->address()));
  EXPECT_TRUE(server_says("wrong version number")) << log.text();
  auto disguised = theirs.options();
  disguised.ca_file = ours.options().ca_file;
  EXPECT_THAT(error_of<InvalidArgument>([&] { set(disguised); }),
              AllOf(HasSubstr(server->address()), HasSubstr("TLS was refused by the server")));
  EXPECT_TRUE(server_says("asn1 encoding routines")) << "the client's signature: " << log.text();
  set(ours.options(), 60s);
}

/// Of this port, where membership is asked for, too.
TEST(GrpcRendezvousTest, TenThousandStrangersLeaveItAtWork) {
  for (const bool has_token : {false, true}) {
    SCOPED_TRACE(has_token ? "with a token" : "open");
    Security security;
    if (has_token) security.token = JobToken::random();
    HostedMembership hosted =
        host_membership("job", "worker 0", {.min_workers = 2, .max_workers = 2, .listed = 2});
    const auto server = RendezvousServer::start(
        {.listen = "127.0.0.1:0", .security = security, .add_services = hosted.add_service});
    const auto rendezvous = make_grpc_rendezvous(server->address(), {"job", 1}, security);
    rendezvous->set_text("before", "value", within(60s));
    const auto before = resident_bytes();
    std::minstd_rand random(5);
    for (int said = 1; said <= 10'000; ++said) {
      const RawSocket socket(server->address());
      ASSERT_TRUE(socket.connected()) << said;
      socket.say(some_bytes(random));
      if (said % 1000 != 0) continue;
      const std::string key = std::to_string(said);
      rendezvous->set_text(key, "at work", within(60s));
      EXPECT_EQ(rendezvous->get_text(key, within(60s)), "at work");
    }
    EXPECT_EQ(rendezvous->get_text("before", within(60s)), "value");
    // gRPC closes refused connections later than they come: 70 MB were seen on a quick machine.
    EXPECT_LT(resident_bytes(), before + (192U << 20));
    const auto other = attend({server->address(), "job", "worker 1", 0, security, 10s});
    auto world = std::async(std::launch::async, [&] { return other->next_world(0, {}, within(60s)); });
    EXPECT_EQ(hosted.attendance->next_world(0, {}, within(60s)).size(), 2);
    EXPECT_EQ(world.get().size(), 2);
    hosted.attendance->end(nullptr);
  }
}

TEST_P(RendezvousTest, WhatPeersStoreIsBounded) {
  auto rendezvous = make();
  const auto refused = [&](auto call) { return error_of<Error>(call); };
  const std::vector<std::byte> large((1 << 20) + 1);
  EXPECT_THAT(refused([&] { rendezvous->set("key", large, within(60s)); }),
              HasSubstr("has 1048577 bytes, at most 1048576 are allowed"));
  EXPECT_THAT(refused([&] { rendezvous->set_text(std::string(2000, 'k'), "", within(60s)); }),
              HasSubstr("the name of a key has 2000 bytes"));
  EXPECT_THAT(refused([&] {
                for (int i = 0; i < 100; ++i)
                  rendezvous->set(std::to_string(i), std::span(large).first(1 << 20), within(60s));
              }),
              HasSubstr("all values together have at most"));
  EXPECT_THAT(refused([&] { rendezvous->barrier("b", 0, 1 << 30, within(60s)); }), HasSubstr("rank 0 of"));
  EXPECT_THAT(refused([&] { make(~std::uint64_t{0})->set_text("key", "value", within(60s)); }),
              HasSubstr("more than 1000 beyond it"));
  make(2)->set_text("key", "value", within(60s));
}

TEST(RankListTest, NamesRunsOfRanks) {
  EXPECT_EQ(rank_list({4}), "rank 4");
  EXPECT_EQ(rank_list({1, 3}), "ranks 1 and 3");
  EXPECT_EQ(rank_list({0, 1, 2, 3, 5, 6, 9}), "ranks 0 to 3, 5, 6 and 9");
}

}  // namespace
}  // namespace braid::comm
