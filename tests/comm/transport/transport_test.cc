#include "comm/transport/transport.h"

#include <filesystem>
#include <random>

#include "launch/port_reservation.h"
#include "tests/comm/transport/transport_fixture.h"
#include "tests/support/temp_dir.h"

namespace braid::comm {
namespace {

using testing::HasSubstr;

/// What holds whatever carries the bytes.
class TransportConformanceTest : public testing::TestWithParam<const char*> {
 protected:
  std::string listen() const {
    const std::string kind = GetParam();
    return kind == "tcp" ? "127.0.0.1:0" : kind + ":" + (directory_.path() / "socket").string();
  }
  const TempDir directory_;
};

INSTANTIATE_TEST_SUITE_P(All, TransportConformanceTest, testing::Values("tcp", "unix", "shm"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(TransportConformanceTest, EchoesMetaAndPayload) {
  EchoServer echo({.listen = listen()});
  auto channel = Channel::create(echo.server->address(), {});
  for (std::size_t bytes : {0, 1, 31, 4096, 65535, 65536, 1 << 20, (5 << 20) + 3}) {
    auto data = pattern(bytes, 7);
    auto reply = channel->call({kEcho, to_bytes("meta"), {data}, nullptr}, nullptr, within(60s));
    EXPECT_EQ(to_text(reply.meta), "meta");
    EXPECT_EQ(gather(reply.payload), data) << bytes;
  }
}

TEST_P(TransportConformanceTest, GathersPiecesAndScattersIntoDestinations) {
  EchoServer echo({.listen = listen()});
  auto channel = Channel::create(echo.server->address(), {});
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    auto data = pattern(random() % 300000, round);
    std::vector<std::byte> received(data.size());
    auto cut = [&](auto bytes) {
      std::vector<decltype(bytes)> pieces;
      while (!bytes.empty()) {
        auto size = std::min<std::size_t>(random() % 3000, bytes.size());
        pieces.push_back(bytes.first(size));  // some are empty
        bytes = bytes.subspan(size);
      }
      return pieces;
    };
    auto reply = channel->call(
        {kEcho, pattern(random() % 100, 1), cut(Bytes(data)), nullptr},
        [&](const IncomingHead& head) {
          EXPECT_EQ(head.payload_bytes, data.size());
          return PayloadSink{cut(MutableBytes(received)), nullptr};
        },
        within(60s));
    ASSERT_EQ(received, data) << round;
  }
}

TEST_P(TransportConformanceTest, LargeMetaArrivesWhole) {
  EchoServer echo({.listen = listen()});
  auto channel = Channel::create(echo.server->address(), {});
  auto meta = pattern(3 << 20, 5);
  EXPECT_EQ(channel->call({kEcho, meta, {}, nullptr}, nullptr, within(60s)).meta, meta);
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                channel->call({kEcho, pattern((16 << 20) + 1, 0), {}, nullptr}, nullptr, within(60s));
              }),
              HasSubstr("meta of 16777217 bytes is over the limit"));
}

TEST_P(TransportConformanceTest, ThousandsOfCallsInFlightEachGetTheirOwnReply) {
  EchoServer echo({.listen = listen(), .io_threads = 2});
  auto channel = Channel::create(echo.server->address(), {.connections = 3});
  constexpr int kCalls = 5000;
  std::atomic<int> right{0}, done{0};
  for (int i = 0; i < kCalls; ++i) {
    auto text = std::to_string(i);
    auto data = std::make_shared<std::vector<std::byte>>(pattern(i % 700, i));
    channel->call_async(
        {i % 2 ? kEcho : kHold, to_bytes(text), {*data}, data}, nullptr,
        [&, text, data](CallResult result) {
          if (!result.error && to_text(result.reply.meta) == text && gather(result.reply.payload) == *data)
            ++right;
          ++done;
        },
        within(60s));
  }
  ASSERT_TRUE(eventually([&] { return done == kCalls / 2 && echo.held() == kCalls / 2; }));
  echo.release();
  ASSERT_TRUE(eventually([&] { return done == kCalls; }));
  EXPECT_EQ(right, kCalls);
}

TEST_P(TransportConformanceTest, ServerErrorsReachTheCallerWithTypeTextAndAddress) {
  EchoServer echo({.listen = listen()});
  auto channel = Channel::create(echo.server->address(), {});
  auto call = [&](std::uint16_t type, std::size_t payload) {
    auto data = pattern(payload, 0);
    channel->call({type, to_bytes("bad key 7"), {data}, nullptr}, nullptr, within(60s));
  };
  EXPECT_EQ(error_of<InvalidArgument>([&] { call(kFail, 10); }), echo.server->address() + ": bad key 7");
  EXPECT_THAT(error_of<Internal>([&] { call(kDrop, 10); }),
              HasSubstr("dropped the request without an answer"));
  EXPECT_THAT(error_of<DataLoss>([&] { call(kThrow, 10); }), HasSubstr("thrown by the handler"));
  EXPECT_THAT(error_of<OutOfMemory>([&] { call(kRefuse, 3 << 20); }), HasSubstr("no room for this payload"));
  EXPECT_EQ(error_of<Error>([&] { call(kEcho, 10); }), "no error")
      << "the connection goes on after all of these";
  EXPECT_EQ(echo.disconnects, 0);
}

TEST(TransportTest, UnixSocketsCarryTheSame) {
  const TempDir directory;
  const auto path = directory.path() / "socket";
  {
    EchoServer echo({.listen = "unix:" + path.string()});
    EXPECT_EQ(echo.server->address(), "unix:" + path.string());
    auto channel = Channel::create(echo.server->address(), {});
    auto data = pattern(2 << 20, 1);
    EXPECT_EQ(gather(channel->call({kEcho, {}, {data}, nullptr}, nullptr, within(60s)).payload), data);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_P(TransportConformanceTest, LargePayloadsCrossInBothDirectionsAtOnce) {
  EchoServer echo({.listen = listen()});
  auto channel = Channel::create(echo.server->address(), {.connections = 2});
  constexpr int kCalls = 24;  // each larger than what a socket or a ring holds
  std::atomic<int> right{0}, done{0};
  for (int i = 0; i < kCalls; ++i) {
    auto data = std::make_shared<std::vector<std::byte>>(pattern((9 << 20) + i, i));
    channel->call_async(
        {kEcho, {}, {*data}, data}, nullptr,
        [&, data](CallResult result) {
          if (!result.error && gather(result.reply.payload) == *data) ++right;
          ++done;
        },
        within(60s));
  }
  ASSERT_TRUE(eventually([&] { return done == kCalls; }));
  EXPECT_EQ(right, kCalls);
}

TEST_P(TransportConformanceTest, ACallPastItsDeadlineLeavesTheOthersAlone) {
  EchoServer echo({.listen = listen()});
  auto channel = Channel::create(echo.server->address(), {});
  auto data = pattern(3 << 20, 1);
  EXPECT_THAT(error_of<DeadlineExceeded>([&] {
                channel->call({kHold, {}, {data}, nullptr}, nullptr, within(50ms));
              }),
              HasSubstr(echo.server->address()));
  EXPECT_EQ(gather(channel->call({kEcho, {}, {data}, nullptr}, nullptr, within(60s)).payload), data);
  echo.release();  // the late reply is read and thrown away
  EXPECT_EQ(gather(channel->call({kEcho, {}, {data}, nullptr}, nullptr, within(60s)).payload), data);
  EXPECT_EQ(echo.disconnects, 0);
}

TEST_P(TransportConformanceTest, AServerThatStopsEndsTheCallsInFlight) {
  auto echo = std::make_unique<EchoServer>(TransportServerOptions{.listen = listen()});
  auto channel = Channel::create(echo->server->address(), {});
  auto data = pattern(1 << 20, 1);
  std::atomic<bool> failed{false};
  channel->call_async(
      {kHold, {}, {data}, nullptr}, nullptr,
      [&](const CallResult& result) { failed = result.error != nullptr; }, within(60s));
  ASSERT_TRUE(eventually([&] { return echo->held() == 1; }));
  echo->server->stop(within(10s));
  EXPECT_TRUE(eventually([&] { return failed.load(); }));
}

TEST_P(TransportConformanceTest, AClientThatGoesIsNoticed) {
  EchoServer echo({.listen = listen()});
  auto channel = Channel::create(echo.server->address(), {});
  channel->call({kEcho, {}, {}, nullptr}, nullptr, within(60s));
  channel.reset();
  EXPECT_TRUE(eventually([&] { return echo.disconnects == 1; }));
}

TEST(TransportTest, AServerThatIsNotThereIsNamed) {
  const launch::PortReservation port(1);
  const std::string& address = port.addresses()[0];
  auto channel = Channel::create(address, {});
  EXPECT_EQ(error_of<Unavailable>([&] {
              channel->call({kEcho, {}, {}, nullptr}, nullptr, within(60s));
            }),
            address + ": cannot connect: Connection refused");
}

TEST(TransportTest, AnAddressInUseIsNamed) {
  EchoServer echo;
  EXPECT_EQ(error_of<Unavailable>([&] { EchoServer({.listen = echo.server->address()}); }),
            "[transport] cannot listen on " + echo.server->address() + ": Address already in use");
}

TEST(TransportTest, BadAddressesAreRefusedWithTheReason) {
  auto reason = [](const std::string& address) {
    return error_of<InvalidArgument>([&] { Channel::create(address, {}); });
  };
  EXPECT_THAT(reason("localhost"), HasSubstr("expected host:port or unix:/path"));
  EXPECT_THAT(reason("localhost:http"), HasSubstr("expected a port from 0 to 65535"));
  EXPECT_THAT(reason("localhost:70000"), HasSubstr("expected a port from 0 to 65535"));
  EXPECT_THAT(reason(":80"), HasSubstr("expected a host"));
  EXPECT_THAT(reason("unix:"), HasSubstr("expected a path"));
  EXPECT_THAT(reason("shm:"), HasSubstr("expected a path"));
  EXPECT_THAT(reason("unix:/" + std::string(200, 'x')), HasSubstr("too long"));
}

TEST(TransportTest, AChannelConnectsAnewAfterTheServerCameBack) {
  const launch::PortReservation port(1);
  const std::string& address = port.addresses()[0];
  auto echo = std::make_unique<EchoServer>(TransportServerOptions{.listen = address});
  auto channel = Channel::create(address, {});
  auto call = [&] { channel->call({kEcho, {}, {}, nullptr}, nullptr, within(60s)); };
  call();
  echo.reset();
  EXPECT_THAT(error_of<Unavailable>(call), HasSubstr(address));
  echo = std::make_unique<EchoServer>(TransportServerOptions{.listen = address});
  EXPECT_EQ(error_of<Error>(call), "no error");
}

}  // namespace
}  // namespace braid::comm
