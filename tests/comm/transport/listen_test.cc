#include <gmock/gmock.h>

#include "base/error.h"
#include "comm/transport/address.h"
#include "comm/transport/socket.h"
#include "comm/transport/transport.h"
#include "tests/support/message_of.h"

namespace braid::comm {
namespace {

using ::testing::ElementsAre;

TEST(ListenTest, CandidatesOfARange) {
  EXPECT_THAT(listen_candidates("[::]:4100-4102"), ElementsAre("[::]:4100", "[::]:4101", "[::]:4102"));
  EXPECT_THAT(listen_candidates("my-host:4100"), ElementsAre("my-host:4100"));
  EXPECT_THAT(listen_candidates("my-host:7-7"), ElementsAre("my-host:7"));
  EXPECT_THAT(listen_candidates("unix:/tmp/a:1-2"), ElementsAre("unix:/tmp/a:1-2"));
  for (const char* wrong : {"h:0-2", "h:9-8", "h:1-65536", "h:a-b", "h:1-", "h:-2"})
    EXPECT_THROW(listen_candidates(wrong), InvalidArgument) << wrong;
}

TEST(ListenTest, TakesTheFirstPortThatIsFree) {
  const ListenSocket taken = listen_on("127.0.0.1:0");
  const std::string range = "127.0.0.1:" + std::to_string(taken.port) + "-" + std::to_string(taken.port + 50);
  const ListenSocket next = listen_on(range);
  EXPECT_GT(next.port, taken.port);
  EXPECT_LE(next.port, taken.port + 50);
  const std::string only = std::to_string(taken.port);
  EXPECT_THROW(listen_on("127.0.0.1:" + only + "-" + only), Unavailable);
  RequestHandler handler;
  handler.on_request = [](IncomingMessage, Responder, std::uint64_t) {};
  TransportServerOptions options;
  options.listen = range;
  const auto server = TransportServer::start(options, handler);
  EXPECT_GT(std::stoi(server->address().substr(server->address().rfind(':') + 1)), taken.port);
  options.listen = "127.0.0.1:" + only + "-" + only;
  EXPECT_THROW(TransportServer::start(options, handler), Unavailable);
}

TEST(ListenTest, ANameThatNobodyHasIsToldWithTheReason) {
  const std::string nobody = "nobody.invalid:0";  // never registered (RFC 2606)
  const auto told = ::testing::MatchesRegex(".*cannot listen on nobody.invalid:0: .+");
  EXPECT_THAT(message_of<Unavailable>([&] { listen_on(nobody); }), told);
  RequestHandler handler;
  handler.on_request = [](IncomingMessage, Responder, std::uint64_t) {};
  TransportServerOptions options;
  options.listen = nobody;
  EXPECT_THAT(message_of<Unavailable>([&] { TransportServer::start(options, handler); }), told);
}

}  // namespace
}  // namespace braid::comm
