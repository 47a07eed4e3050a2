// What a transport does when the other side is broken, silent, malicious or gone.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <future>

#include "comm/transport/frame.h"
#include "tests/comm/transport/transport_fixture.h"
#include "tests/support/in_some_attempt.h"

namespace braid::comm {
namespace {

using testing::HasSubstr;

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

/// A blocking socket that speaks (or misspeaks) the protocol byte by byte.
class RawSocket {
 public:
  explicit RawSocket(int fd) : fd_(fd) {}
  RawSocket(RawSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~RawSocket() { close(); }
  static RawSocket connect_to(const std::string& address) {
    RawSocket raw(socket(AF_INET, SOCK_STREAM, 0));
    auto to = loopback(std::stoi(address.substr(address.rfind(':') + 1)));
    EXPECT_EQ(::connect(raw.fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    return raw;
  }
  void send(Bytes bytes) {
    while (!bytes.empty()) {
      auto sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      bytes = bytes.subspan(sent);
    }
  }
  /// Until `bytes` came or the peer ended.
  std::vector<std::byte> receive(std::size_t bytes) {
    std::vector<std::byte> data(bytes);
    std::size_t got = 0;
    while (got < bytes) {
      auto read = ::recv(fd_, data.data() + got, bytes - got, 0);
      if (read <= 0) break;
      got += read;
    }
    data.resize(got);
    return data;
  }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

/// Accepts raw connections on the loopback.
class RawListener {
 public:
  RawListener() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    auto address = loopback(0);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(fd_, 8), 0);
  }
  ~RawListener() { close(fd_); }
  std::string address() const {
    sockaddr_in bound{};
    socklen_t size = sizeof(bound);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&bound), &size);
    return "127.0.0.1:" + std::to_string(ntohs(bound.sin_port));
  }
  RawSocket accept() { return RawSocket(::accept(fd_, nullptr, nullptr)); }

 private:
  int fd_;
};

std::vector<std::byte> frame(FrameKind kind, std::uint64_t id, std::uint64_t payload_bytes,
                             std::vector<std::byte> meta = {}, std::uint16_t type = kEcho) {
  auto header = encode_frame_header({kind, type, id, payload_bytes, 0, 0}, meta);
  std::vector<std::byte> bytes(header.begin(), header.end());
  for (const std::byte b : meta) bytes.push_back(b);
  return bytes;
}

/// The frame that ends what a server sends.
ErrorRecord last_words(RawSocket& raw) {
  auto all = raw.receive(1 << 20);
  if (all.size() < kFrameHeaderBytes) return {ErrorCode::Internal, "nothing came"};
  auto header =
      decode_frame_header(std::span<const std::byte, kFrameHeaderBytes>(all.data(), kFrameHeaderBytes));
  EXPECT_EQ(header.kind, FrameKind::Goodbye);
  return decode_error_meta(Bytes(all).subspan(kFrameHeaderBytes, header.meta_bytes));
}

struct Corruption {
  const char* name;
  std::size_t offset;
  std::byte flip;
  const char* text;
};

class CorruptFrameTest : public testing::TestWithParam<Corruption> {};

TEST_P(CorruptFrameTest, ServerSaysWhyAndCloses) {
  EchoServer echo;
  auto raw = RawSocket::connect_to(echo.server->address());
  auto bytes = frame(FrameKind::Request, 1, 0, to_bytes("some meta"));
  bytes[GetParam().offset] ^= GetParam().flip;
  raw.send(bytes);
  raw.send(pattern(100000, 3));  // what follows is not taken for frames
  auto words = last_words(raw);
  EXPECT_EQ(words.code, ErrorCode::DataLoss);
  EXPECT_THAT(words.message, HasSubstr(GetParam().text));
  raw.close();
  EXPECT_TRUE(eventually([&] { return echo.disconnects == 1; }));
  EXPECT_EQ(echo.requests, 0);
}

TEST_P(CorruptFrameTest, ClientFailsTheCallsWithTheReason) {
  RawListener listener;
  auto channel = Channel::create(listener.address(), {});
  std::thread server([&] {
    auto raw = listener.accept();
    raw.receive(kFrameHeaderBytes);
    auto bytes = frame(FrameKind::Reply, 1, 0, to_bytes("some meta"));
    bytes[GetParam().offset] ^= GetParam().flip;
    raw.send(bytes);
    raw.receive(1);
  });
  auto message = error_of<Unavailable>([&] {
    channel->call({kEcho, {}, {}, nullptr}, nullptr, within(60s));
  });
  server.join();
  EXPECT_THAT(message, HasSubstr(listener.address() + ": the connection was closed: bad frame"));
  EXPECT_THAT(message, HasSubstr(GetParam().text));
}

INSTANTIATE_TEST_SUITE_P(
    All, CorruptFrameTest,
    testing::Values(Corruption{"Magic", 0, std::byte{0x10}, "magic 0x44415252, expected 0x44415242"},
                    Corruption{"Version", 4, std::byte{0x08}, "version 9, this program speaks 1"},
                    Corruption{"Kind", 5, std::byte{0x40}, "unknown kind"},
                    Corruption{"Type", 6, std::byte{0x01}, "CRC"},
                    Corruption{"Id", 9, std::byte{0x80}, "CRC"},
                    Corruption{"PayloadSize", 20, std::byte{0x01}, "CRC"},
                    Corruption{"MetaSize", 27, std::byte{0x80}, "meta of 2147483657 bytes is over the limit"},
                    Corruption{"Crc", 28, std::byte{0x01}, "CRC"},
                    Corruption{"Meta", kFrameHeaderBytes + 3, std::byte{0x20}, "CRC"}),
    [](auto& info) { return info.param.name; });

TEST(TransportFaultTest, AnOversizePayloadIsRefusedByNameAndNotRead) {
  EchoServer echo({.listen = "127.0.0.1:0", .max_payload_bytes = 1000});
  auto channel = Channel::create(echo.server->address(), {});
  auto data = pattern(8 << 20, 0);
  auto call = [&](std::size_t bytes) {
    channel->call({kEcho, {}, {Bytes(data).first(bytes)}, nullptr}, nullptr, within(60s));
  };
  EXPECT_THAT(error_of<InvalidArgument>([&] { call(1001); }),
              HasSubstr("payload of 1001 bytes is over the server's limit of 1000"));
  EXPECT_THAT(error_of<InvalidArgument>([&] { call(data.size()); }), HasSubstr("over the server's limit"));
  EXPECT_EQ(error_of<Error>([&] { call(1000); }), "no error");
}

TEST(TransportFaultTest, AHalfWrittenFrameEndsQuietlyWhenItsSenderGoes) {
  EchoServer echo;
  auto bytes = frame(FrameKind::Request, 1, 1000, to_bytes("meta"));
  for (std::size_t cut : {std::size_t{1}, kFrameHeaderBytes - 1, kFrameHeaderBytes + 2, bytes.size()}) {
    auto before = echo.disconnects.load();
    auto raw = RawSocket::connect_to(echo.server->address());
    raw.send(Bytes(bytes).first(cut));
    std::this_thread::sleep_for(5ms);
    raw.close();
    EXPECT_TRUE(eventually([&] { return echo.disconnects == before + 1; })) << cut;
  }
  EXPECT_EQ(echo.requests, 0);
}

TEST(TransportFaultTest, BytesThatArriveOneByOneMakeTheSameFrames) {
  EchoServer echo;
  auto raw = RawSocket::connect_to(echo.server->address());
  auto bytes = frame(FrameKind::Request, 1, 3, to_bytes("meta"));
  auto payload = to_bytes("abc");
  for (const std::byte b : payload) bytes.push_back(b);
  for (auto byte : bytes) {
    raw.send({&byte, 1});
    std::this_thread::sleep_for(200us);
  }
  EXPECT_THAT(to_text(raw.receive(kFrameHeaderBytes + 7)), HasSubstr("metaabc"));
}

TEST(TransportFaultTest, AReplyCutShortFailsTheCall) {
  RawListener listener;
  auto channel = Channel::create(listener.address(), {});
  std::thread server([&] {
    auto raw = listener.accept();
    raw.receive(kFrameHeaderBytes);
    raw.send(frame(FrameKind::Reply, 1, 1000));
    raw.send(pattern(500, 0));
  });
  auto message = error_of<Unavailable>([&] {
    channel->call({kEcho, {}, {}, nullptr}, nullptr, within(60s));
  });
  server.join();
  EXPECT_EQ(message, listener.address() + ": the connection was closed by the peer in the middle of a frame");
}

TEST(TransportFaultTest, ALateReplyIsDrainedAndLaterCallsWork) {
  in_some_attempt([] {  // the request must be on its way before its deadline
    EchoServer echo;
    auto channel = Channel::create(echo.server->address(), {});
    auto data = pattern(1 << 20, 1);
    std::vector<std::byte> memory(data.size(), std::byte{0xee});
    auto sink = [&](const IncomingHead&) { return PayloadSink{{memory}, nullptr}; };
    channel->call({kEcho, {}, {}, nullptr}, nullptr, within(60s));  // connects
    auto started = std::chrono::steady_clock::now();
    auto message = error_of<DeadlineExceeded>([&] {
      channel->call({kHold, {}, {data}, nullptr}, sink, within(50ms));
    });
    ASSERT_LT(std::chrono::steady_clock::now() - started, 1s);
    ASSERT_EQ(message, echo.server->address() + ": request type 3: no answer before the deadline");
    ASSERT_TRUE(eventually([&] { return echo.held() == 1; }));
    EXPECT_EQ(echo.release(), 1u);
    EXPECT_EQ(gather(channel->call({kEcho, {}, {data}, nullptr}, nullptr, within(60s)).payload), data);
    EXPECT_TRUE(std::all_of(memory.begin(), memory.end(), [](auto byte) { return byte == std::byte{0xee}; }));
    EXPECT_EQ(echo.disconnects, 0) << "on the same connection";
  });
}

TEST(TransportFaultTest, ADeadlineInTheMiddleOfAReplyLeavesTheMemoryAlone) {
  in_some_attempt([] {  // the reply's first half must be there before the deadline
    RawListener listener;
    auto channel = Channel::create(listener.address(), {});
    auto reply = pattern(100000, 1);
    std::atomic<bool> gone{false};
    std::jthread server([&] {
      auto raw = listener.accept();
      raw.receive(kFrameHeaderBytes);
      raw.send(frame(FrameKind::Reply, 1, reply.size()));
      raw.send(Bytes(reply).first(50000));
      while (!gone) std::this_thread::sleep_for(1ms);
      raw.send(Bytes(reply).subspan(50000));
      raw.receive(kFrameHeaderBytes);
      raw.send(frame(FrameKind::Reply, 2, 0, to_bytes("next")));
      raw.receive(1);
    });
    std::vector<std::byte> memory(reply.size());
    auto message = error_of<DeadlineExceeded>([&] {
      channel->call(
          {kEcho, {}, {}, nullptr},
          [&](const IncomingHead&) {
            return PayloadSink{{memory}, nullptr};
          },
          within(100ms));
    });
    EXPECT_THAT(message, HasSubstr("no answer before the deadline"));
    EXPECT_EQ(memory[49999], reply[49999]) << "the deadline came in the middle";
    std::fill(memory.begin(), memory.end(), std::byte{0xee});
    gone = true;
    std::string next;
    try {
      next = to_text(channel->call({kEcho, {}, {}, nullptr}, nullptr, within(20s)).meta);
    } catch (const Error& error) {
      next = error.message();
    }
    EXPECT_EQ(next, "next");
    EXPECT_TRUE(std::all_of(memory.begin(), memory.end(), [](auto byte) { return byte == std::byte{0xee}; }));
    channel.reset();
  });
}

TEST(TransportFaultTest, ADeadlineInTheMiddleOfARequestClosesTheConnection) {
  in_some_attempt([] {     // the second call must be made before the first one's deadline
    RawListener listener;  // accepts nothing, so the kernel's buffers fill up
    auto channel = Channel::create(listener.address(), {});
    auto data = std::make_unique<std::vector<std::byte>>(64 << 20);
    std::promise<ErrorPtr> first, second;
    channel->call_async(
        {kEcho, {}, {*data}, nullptr}, nullptr, [&](CallResult result) { first.set_value(result.error); },
        within(300ms));
    channel->call_async(
        {kEcho, {}, {}, nullptr}, nullptr, [&](CallResult result) { second.set_value(result.error); },
        within(5s));
    EXPECT_EQ(first.get_future().get()->code, ErrorCode::DeadlineExceeded);
    data.reset();  // AddressSanitizer would see a read of it from now on
    EXPECT_EQ(second.get_future().get()->code, ErrorCode::Unavailable);
    channel.reset();
  });
}

TEST(TransportFaultTest, AStopRequestEndsACall) {
  EchoServer echo;
  auto channel = Channel::create(echo.server->address(), {});
  std::stop_source source;
  std::jthread stopper([&] {
    eventually([&] { return echo.held() == 1; });
    source.request_stop();
  });
  auto wait = WaitContext::with_timeout(60s, source.get_token());
  EXPECT_THAT(error_of<Cancelled>([&] {
                channel->call({kHold, {}, {}, nullptr}, nullptr, wait);
              }),
              HasSubstr("cancelled"));
  EXPECT_THAT(error_of<Cancelled>([&] {
                channel->call({kHold, {}, {}, nullptr}, nullptr, wait);
              }),
              HasSubstr("cancelled"))
      << "a request made before the call counts too";
}

TEST(TransportFaultTest, AStoppedServerFailsTheCallsInFlight) {
  EchoServer echo;
  auto channel = Channel::create(echo.server->address(), {});
  std::atomic<int> failed{0};
  std::string message;
  for (int i = 0; i < 100; ++i)
    channel->call_async(
        {kHold, {}, {}, nullptr}, nullptr,
        [&](CallResult result) {
          if (failed == 0) message = result.error->message;
          ++failed;
        },
        within(60s));
  ASSERT_TRUE(eventually([&] { return echo.held() == 100; }));
  echo.server->stop(within(60s));
  echo.server->stop(within(60s));
  EXPECT_TRUE(eventually([&] { return failed == 100; }));
  EXPECT_THAT(message, HasSubstr("the server stopped"));
  EXPECT_EQ(echo.disconnects, 1);
}

TEST(TransportFaultTest, ASilentServerMeetsTheDeadline) {
  RawListener listener;
  auto channel = Channel::create(listener.address(), {});
  auto started = std::chrono::steady_clock::now();
  EXPECT_THAT(error_of<DeadlineExceeded>([&] {
                channel->call({kEcho, {}, {}, nullptr}, nullptr, within(100ms));
              }),
              HasSubstr(listener.address()));
  EXPECT_LT(std::chrono::steady_clock::now() - started, 20s);
}

TEST(TransportFaultTest, ADestroyedChannelFailsItsCallsAndMayBeDestroyedByACallback) {
  EchoServer echo;
  auto channel = Channel::create(echo.server->address(), {});
  std::atomic<int> failed{0}, done{0};
  channel->call_async(
      {kHold, {}, {}, nullptr}, nullptr, [&](CallResult result) { failed += result.error != nullptr; },
      within(60s));
  channel.reset();
  EXPECT_EQ(failed, 1);
  auto self_owned = Channel::create(echo.server->address(), {});
  auto* raw = self_owned.get();
  raw->call_async(
      {kEcho, {}, {}, nullptr}, nullptr,
      [&, owned = std::move(self_owned)](CallResult) mutable {
        owned.reset();
        ++done;
      },
      within(60s));
  EXPECT_TRUE(eventually([&] { return done == 1; }));
}

TEST(TransportFaultTest, AHandlerThatWaitsDoesNotKeepTheServerFromSayingSo) {
  std::atomic<bool> entered{false}, go{false};
  RequestHandler handler;
  handler.on_request = [&](IncomingMessage, Responder, std::uint64_t) {
    entered = true;
    while (!go) std::this_thread::sleep_for(1ms);
  };
  auto server = TransportServer::start({.listen = "127.0.0.1:0"}, handler);
  auto channel = Channel::create(server->address(), {});
  channel->call_async(
      {kEcho, {}, {}, nullptr}, nullptr, [](CallResult) {}, within(60s));
  ASSERT_TRUE(eventually([&] { return entered.load(); }));
  EXPECT_THAT(error_of<DeadlineExceeded>([&] { server->stop(within(50ms)); }),
              HasSubstr("a handler still runs"));
  go = true;
  server->stop(within(60s));
}

}  // namespace
}  // namespace braid::comm
