#include "tests/comm/kept_log.h"
#include "tests/comm/transport/tls_files.h"
#include "tests/comm/transport/transport_fixture.h"

namespace braid::comm {
namespace {

using testing::HasSubstr;

TEST(TransportTlsTest, CarriesMessagesOfAllSizesBothWays) {
  TlsFiles files;
  EchoServer echo({.listen = "127.0.0.1:0", .security = {files.options()}});
  auto channel = Channel::create(echo.server->address(), {.security = {files.options()}});
  for (std::size_t bytes : {0, 1, 16383, 16384, 16385, 70000, (3 << 20) + 1}) {
    auto data = pattern(bytes, 3);
    auto reply = channel->call({kEcho, to_bytes("meta"), {data}, nullptr}, nullptr, within(60s));
    EXPECT_EQ(gather(reply.payload), data) << bytes;
  }
}

TEST(TransportTlsTest, ManyCallsInFlight) {
  TlsFiles files;
  EchoServer echo({.listen = "127.0.0.1:0", .security = {files.options()}});
  auto channel = Channel::create(echo.server->address(), {.connections = 2, .security = {files.options()}});
  std::atomic<int> right{0}, done{0};
  constexpr int kCalls = 500;
  for (int i = 0; i < kCalls; ++i) {
    auto data = std::make_shared<std::vector<std::byte>>(pattern(i * 50, i));
    channel->call_async(
        {kEcho, {}, {*data}, data}, nullptr,
        [&, data](CallResult result) {
          right += !result.error && gather(result.reply.payload) == *data;
          ++done;
        },
        within(60s));
  }
  ASSERT_TRUE(eventually([&] { return done == kCalls; }));
  EXPECT_EQ(right, kCalls);
}

TEST(TransportTlsTest, StrangersAreRefusedOnBothSides) {
  TlsFiles ours, theirs;
  const KeptLog log;
  EchoServer echo({.listen = "127.0.0.1:0", .security = {ours.options()}});
  const auto server_says = [&](const char* why) {
    return log.comes_to_say("transport: 127.0.0.1:", why);  // at a port that the system chose
  };
  auto call = [&](TlsOptions tls) {
    auto channel = Channel::create(echo.server->address(), {.security = {std::move(tls)}});
    channel->call({kEcho, {}, {}, nullptr}, nullptr, within(60s));
  };
  EXPECT_THAT(error_of<Unavailable>([&] { call(theirs.options()); }), HasSubstr("certificate verify failed"))
      << "the client does not know the server's CA";
  EXPECT_TRUE(server_says("refused: was lost: TLS: tlsv1 alert")) << log.text();
  auto disguised = theirs.options();
  disguised.ca_file = ours.options().ca_file;
  // Its alert may be overtaken by the reset of the connection, so the text is not certain.
  EXPECT_THAT(error_of<Unavailable>([&] { call(disguised); }), HasSubstr(echo.server->address()))
      << "the server does not know the client's CA";
  EXPECT_TRUE(server_says("refused: was lost: TLS: certificate verify failed")) << log.text();
  EXPECT_THAT(error_of<Unavailable>([&] { call({}); }), HasSubstr(echo.server->address())) << "plain text";
  EXPECT_TRUE(server_says("refused: was lost: TLS: wrong version number")) << log.text();
  EXPECT_EQ(echo.requests, 0);
  EXPECT_EQ(error_of<Error>([&] { call(ours.options()); }), "no error");
}

TEST(TransportTlsTest, FilesThatCannotBeUsedAreNamed) {
  TlsFiles files, others;
  auto with = [&](auto change) {
    auto options = files.options();
    change(options);
    return error_of<InvalidArgument>([&] { Channel::create("127.0.0.1:1", {.security = {options}}); });
  };
  EXPECT_THAT(with([](auto& o) { o.ca_file = ""; }), HasSubstr("ca_file is empty"));
  EXPECT_THAT(with([](auto& o) { o.certificate_file = "/nowhere.pem"; }),
              HasSubstr("[transport] TLS certificate_file '/nowhere.pem': No such file or directory"));
  EXPECT_THAT(with([&](auto& o) { o.key_file = others.path("task.key"); }), HasSubstr("key values mismatch"));
}

}  // namespace
}  // namespace braid::comm
