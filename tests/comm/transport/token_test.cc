// The job's token: the handshake's state machine by itself, and over the sockets of each kind of connection.
#include <random>
#include <set>

#include "comm/rendezvous/grpc_rendezvous.h"
#include "comm/transport/frame.h"
#include "comm/transport/peer_probe.h"
#include "comm/transport/token_certificate.h"
#include "comm/transport/token_handshake.h"
#include "tests/comm/error_of.h"
#include "tests/comm/transport/raw_socket.h"
#include "tests/comm/transport/transport_fixture.h"

namespace braid::comm {
namespace {

using testing::HasSubstr;
using testing::Not;
using Side = TokenHandshake::Side;
using State = TokenHandshake::State;

const JobToken kToken("a token of this test alone", "test");
const JobToken kOther("another token, of a stranger", "test");

/// Moves what one side has to send to the other, `piece` bytes at a time. Result: the bytes.
std::vector<std::byte> move_bytes(TokenHandshake& from, TokenHandshake& to, std::size_t piece = 1000) {
  std::vector<std::byte> moved;
  while (from.state() == State::Send && to.state() == State::Receive) {
    const auto out = from.to_send();
    const auto in = to.to_receive();
    const auto bytes = std::min({out.size(), in.size(), piece});
    std::copy_n(out.begin(), bytes, in.begin());
    moved.insert(moved.end(), out.begin(), out.begin() + static_cast<std::ptrdiff_t>(bytes));
    from.sent(bytes);
    to.received(bytes);
  }
  return moved;
}

std::string converse(TokenHandshake& client, TokenHandshake& server, std::size_t piece = 1000) {
  std::string all;
  for (int turn = 0; turn < 6; ++turn) {
    all += to_text(move_bytes(client, server, piece));
    all += to_text(move_bytes(server, client, piece));
  }
  return all;
}

TEST(TokenHandshakeTest, SidesWithOneTokenBelieveEachOther) {
  for (const std::size_t piece : {1, 7, 40, 1000}) {
    TokenHandshake client(Side::Client, kToken, "test"), server(Side::Server, kToken, "test");
    const std::string all = converse(client, server, piece);
    EXPECT_EQ(client.state(), State::Done) << client.error();
    EXPECT_EQ(server.state(), State::Done) << server.error();
    EXPECT_EQ(all.size(), 40U + 40 + 32 + 40);
    EXPECT_THAT(all, Not(HasSubstr(kToken.text()))) << "the token never travels";
  }
}

TEST(TokenHandshakeTest, NoTwoConversationsAreAlike) {
  std::set<std::string> seen;
  for (int i = 0; i < 20; ++i) {
    TokenHandshake client(Side::Client, kToken, "test"), server(Side::Server, kToken, "test");
    seen.insert(converse(client, server));
  }
  EXPECT_EQ(seen.size(), 20U);
}

TEST(TokenHandshakeTest, AnotherTokenOrPurposeIsRefusedOnBothSides) {
  for (const auto& [token, purpose] : {std::pair(kOther, "test"), std::pair(kToken, "other")}) {
    TokenHandshake client(Side::Client, token, purpose), server(Side::Server, kToken, "test");
    const std::string all = converse(client, server);
    EXPECT_EQ(client.state(), State::Failed);
    EXPECT_EQ(server.state(), State::Failed);
    EXPECT_EQ(client.error(), "has another job token than this process");
    EXPECT_EQ(server.error(), "has another job token than this process");
    EXPECT_EQ(all.substr(all.size() - 32), std::string(32, '\0')) << "the server proves nothing to strangers";
  }
}

TEST(TokenHandshakeTest, AServerThatOnlyRepeatsOrInventsIsRefused) {
  TokenHandshake honest_client(Side::Client, kToken, "test"), server(Side::Server, kToken, "test");
  move_bytes(honest_client, server);
  const auto challenge = std::vector(server.to_send().begin(), server.to_send().end());
  move_bytes(server, honest_client);
  move_bytes(honest_client, server);
  const auto verdict = std::vector(server.to_send().begin(), server.to_send().end());

  TokenHandshake client(Side::Client, kToken, "test");
  const auto say = [&](std::span<const std::byte> bytes) {
    client.sent(client.to_send().size());
    std::copy(bytes.begin(), bytes.end(), client.to_receive().begin());
    client.received(bytes.size());
  };
  say(challenge);
  say(verdict);  // of the other conversation
  EXPECT_EQ(client.state(), State::Failed);
  EXPECT_EQ(client.error(), "did not prove that it knows the job's token");
}

TEST(TokenHandshakeTest, ARecordedProofIsOfNoUse) {
  TokenHandshake client(Side::Client, kToken, "test"), server(Side::Server, kToken, "test");
  const auto hello = move_bytes(client, server);
  move_bytes(server, client);
  const auto proof = move_bytes(client, server);
  ASSERT_EQ(proof.size(), 32U);
  TokenHandshake next(Side::Server, kToken, "test");
  for (const auto& said : {hello, proof}) {
    std::copy(said.begin(), said.end(), next.to_receive().begin());
    next.received(said.size());
    next.sent(next.to_send().size());
  }
  EXPECT_EQ(next.state(), State::Failed);
}

TEST(TokenHandshakeTest, WhoSpeaksSomethingElseIsKnownByTheFirstBytes) {
  TokenHandshake server(Side::Server, kToken, "test", to_bytes("go away"));
  const auto frame = to_bytes("BRA");
  std::copy(frame.begin(), frame.end(), server.to_receive().begin());
  server.received(frame.size());
  ASSERT_EQ(server.state(), State::Send);
  EXPECT_EQ(to_text(server.to_send()), "go away");
  server.sent(7);
  EXPECT_EQ(server.state(), State::Drain) << "what it still says would reset the connection";
  server.received(1000);
  server.closed();
  EXPECT_THAT(server.error(), HasSubstr("it does not speak of one"));

  TokenHandshake client(Side::Client, kToken, "test");
  client.sent(client.to_send().size());
  std::copy(frame.begin(), frame.end(), client.to_receive().begin());
  client.received(frame.size());
  EXPECT_EQ(client.error(), "does not ask for the job's token: it was started without one");
}

TEST(TokenHandshakeTest, RandomBytesNeverProveAnything) {
  std::minstd_rand random(1);
  for (int i = 0; i < 10'000; ++i) {
    TokenHandshake side(i % 2 == 0 ? Side::Server : Side::Client, kToken, "test", to_bytes("no"));
    for (int turn = 0; turn < 8 && side.state() != State::Failed && side.state() != State::Drain; ++turn) {
      if (side.state() == State::Send) {
        side.sent(std::min<std::size_t>(side.to_send().size(), 1 + random() % 50));
        continue;
      }
      const auto place = side.to_receive();
      const auto bytes = std::min<std::size_t>(place.size(), 1 + random() % 50);
      for (std::size_t k = 0; k < bytes; ++k) place[k] = static_cast<std::byte>(random());
      if (random() % 2 == 0 && bytes > 4) std::memcpy(place.data(), "BTOK\1", 5);
      side.received(bytes);
    }
    ASSERT_NE(side.state(), State::Done);
  }
}

TEST(JobTokenTest, ShortOnesAreRefusedWithoutBeingTold) {
  EXPECT_THAT(error_of<InvalidArgument>([] { JobToken(" shortish \n", "BRAID_TOKEN"); }),
              testing::AllOf(HasSubstr("BRAID_TOKEN: a job token has 16 to 4096 characters, this one has 8"),
                             Not(HasSubstr("shortish"))));
  EXPECT_EQ(JobToken("0123456789abcdef\n", "file").text(), "0123456789abcdef");
  EXPECT_NE(JobToken::random().text(), JobToken::random().text());
}

TEST(JobTokenTest, ItsCertificateIsTheSameInEveryProcess) {
  EXPECT_EQ(token_certificate(kToken).certificate, token_certificate(kToken).certificate);
  EXPECT_NE(token_certificate(kToken).certificate, token_certificate(kOther).certificate);
}

class TokenTransportTest : public testing::TestWithParam<bool> {
 protected:
  TokenTransportTest() {
    options_.listen =
        GetParam() ? "unix:" + testing::TempDir() + "braid-token-" + std::to_string(getpid()) : "127.0.0.1:0";
    options_.security.token = kToken;
    echo_ = std::make_unique<EchoServer>(options_);
  }
  std::string call(const Security& security, const std::string& text = "hello") {
    auto channel = Channel::create(echo_->server->address(), {.security = security});
    return to_text(channel->call({kEcho, to_bytes(text), {}, nullptr}, nullptr, within(60s)).meta);
  }
  TransportServerOptions options_;
  std::unique_ptr<EchoServer> echo_;
};

TEST_P(TokenTransportTest, CarriesMessagesOfAllSizesBothWays) {
  auto channel = Channel::create(echo_->server->address(), {.security = {{}, kToken}});
  for (std::size_t bytes : {0, 1, 70000, (3 << 20) + 1}) {
    auto data = pattern(bytes, 3);
    auto reply = channel->call({kEcho, to_bytes("meta"), {data}, nullptr}, nullptr, within(60s));
    EXPECT_EQ(gather(reply.payload), data) << bytes;
  }
}

TEST_P(TokenTransportTest, StrangersAreToldWhyAndServedNothing) {
  EXPECT_THAT(error_of<Unavailable>([&] { call({{}, kOther}); }), HasSubstr("has another job token"));
  EXPECT_THAT(error_of<Unavailable>([&] { call({}); }), HasSubstr("asks for the job's token"));
  EXPECT_EQ(echo_->requests, 0);
  EXPECT_EQ(call({{}, kToken}), "hello");
}

TEST_P(TokenTransportTest, AServerWithoutTheTokenIsNotBelieved) {
  auto open = options_;
  open.listen = "127.0.0.1:0";
  open.security = {};
  EchoServer liar(open);
  auto channel = Channel::create(liar.server->address(), {.security = {{}, kToken}});
  EXPECT_THAT(error_of<Unavailable>([&] {
                channel->call({kEcho, to_bytes("secret"), {}, nullptr}, nullptr, within(60s));
              }),
              HasSubstr("it was started without one"));
  EXPECT_EQ(liar.requests, 0);
}

TEST_P(TokenTransportTest, TenThousandStrangersLeaveItAtWork) {
  auto channel = Channel::create(echo_->server->address(), {.security = {{}, kToken}});
  std::minstd_rand random(7);
  const auto before = resident_bytes();
  for (int i = 0; i < 10'000; ++i) {
    RawSocket stranger(echo_->server->address());
    stranger.say(some_bytes(random));
    if (i % 500 == 0) {
      auto reply = channel->call({kEcho, to_bytes("still here"), {}, nullptr}, nullptr, within(60s));
      ASSERT_EQ(to_text(reply.meta), "still here");
    }
  }
  EXPECT_LT(resident_bytes(), before + (64U << 20));
}

INSTANTIATE_TEST_SUITE_P(Sockets, TokenTransportTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Unix" : "Tcp"; });

TEST(TokenTimeTest, WhoSaysNothingIsLetGo) {
  TransportServerOptions options{.listen = "127.0.0.1:0"};
  options.security.token = kToken;
  EchoServer echo(options);
  RawSocket silent(echo.server->address());
  EXPECT_TRUE(silent.closed_within(20s));
}

TEST(TokenGrpcTest, StrangersHearAtOnceWhoRefusesThem) {
  auto server = RendezvousServer::start({.listen = "127.0.0.1:0", .security = {{}, kToken}});
  auto set = [&](const Security& security) {
    make_grpc_rendezvous(server->address(), {"job", 1}, security)->set_text("key", "value", within(60s));
  };
  set({{}, kToken});
  EXPECT_THAT(error_of<InvalidArgument>([&] { set({{}, kOther}); }), HasSubstr("has another job token"));
  EXPECT_THAT(error_of<InvalidArgument>([&] { set({}); }), HasSubstr("asks for a token or for TLS"));
  auto open = RendezvousServer::start({.listen = "127.0.0.1:0"});
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                make_grpc_rendezvous(open->address(), {"job", 1}, {{}, kToken})
                    ->set_text("key", "value", within(60s));
              }),
              HasSubstr("it does not encrypt"));
}

TEST(TokenGrpcTest, StrangersLeaveARendezvousAtWork) {
  for (const bool has_token : {true, false}) {
    const Security security{{}, has_token ? kToken : JobToken()};
    auto server = RendezvousServer::start({.listen = "127.0.0.1:0", .security = security});
    auto rendezvous = make_grpc_rendezvous(server->address(), {"job", 1}, security);
    std::minstd_rand random(9);
    const auto before = resident_bytes();
    for (int i = 0; i < 2'500; ++i) {
      RawSocket stranger(server->address());
      stranger.say(some_bytes(random));
      if (i % 250 != 0) continue;
      rendezvous->set_text("key", std::to_string(i), within(60s));
      ASSERT_EQ(rendezvous->get_text("key", within(60s)), std::to_string(i));
    }
    EXPECT_LT(resident_bytes(), before + (128U << 20));
  }
}

}  // namespace
}  // namespace braid::comm
