// Question: what does comm/transport cost beside a blocking socket that carries the same frames between two
// threads?
//
// Requests of one payload size go to a server in this process, which reads each into memory of its own and
// answers with an empty reply; up to `window` are in flight. The blocking side does the same with plain reads
// and writes on two threads, a third taking the replies. Both run in turn, several rounds; the numbers are
// medians. GB/s counts a payload once. Verified: the last payload that each server received.
//
//   transport_bench [--seconds S] [--rounds R] [--unix]
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <semaphore>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/transport/frame.h"
#include "comm/transport/transport.h"

namespace braid::comm {
namespace {

using Clock = std::chrono::steady_clock;

struct Settings {
  double seconds = 0.5;
  int rounds = 5;
  bool unix_socket = false;
};

struct Case {
  std::size_t payload_bytes;
  int window;
};

std::vector<std::byte> pattern(std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 7 + i / 255);
  return data;
}

void verify(const std::vector<std::byte>& got, const std::vector<std::byte>& sent) {
  if (got != sent) throw std::runtime_error("the payload arrived damaged");
}

/// Messages a second: `send` starts a message that gives its slot back when it is answered. Returns when all
/// are.
template <class Send>
double measure(const Case& c, const Settings& settings, std::counting_semaphore<>& slots, const Send& send) {
  auto send_one = [&] {
    slots.acquire();
    send();
  };
  auto drain = [&] {
    for (int i = 0; i < c.window; ++i) slots.acquire();
    slots.release(c.window);
  };
  for (int i = 0; i < 2 * c.window; ++i) send_one();
  drain();
  auto start = Clock::now();
  auto end =
      start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(settings.seconds));
  std::uint64_t messages = 0;
  while (Clock::now() < end)
    for (int i = 0; i < 16; ++i, ++messages) send_one();
  drain();
  return static_cast<double>(messages) / std::chrono::duration<double>(Clock::now() - start).count();
}

/// Messages a second through the transport.
double run_transport(const Case& c, const Settings& settings) {
  auto sent = pattern(c.payload_bytes);
  std::vector<std::byte> received(c.payload_bytes);
  RequestHandler handler;
  handler.on_head = [&](const IncomingHead&) { return PayloadSink{{received}, nullptr}; };
  handler.on_request = [](IncomingMessage message, Responder responder, std::uint64_t) {
    responder.reply({message.type, {}, {}, nullptr});
  };
  auto listen = settings.unix_socket ? fmt::format("unix:/tmp/braid-bench-{}.sock", getpid()) : "127.0.0.1:0";
  auto server = TransportServer::start({.listen = listen}, handler);
  auto channel = Channel::create(server->address(), {});
  std::counting_semaphore<> slots(c.window);
  auto wait = WaitContext::with_timeout(std::chrono::seconds(60));
  std::atomic<int> errors{0};
  const double rate = measure(c, settings, slots, [&] {
    channel->call_async(
        {1, {}, {sent}, nullptr}, nullptr,
        [&](CallResult result) {
          errors += result.error != nullptr;
          slots.release();
        },
        wait);
  });
  if (errors > 0) throw std::runtime_error("calls failed");
  verify(received, sent);
  server->stop(WaitContext::with_timeout(std::chrono::seconds(5)));
  return rate;
}

void read_all(int fd, void* data, std::size_t bytes) {
  auto* to = static_cast<char*>(data);
  while (bytes > 0) {
    auto got = recv(fd, to, bytes, 0);
    if (got <= 0) throw std::runtime_error("read failed");
    to += got;
    bytes -= static_cast<std::size_t>(got);
  }
}

void write_frame(int fd, const EncodedHeader& header, Bytes payload) {
  iovec pieces[2] = {{const_cast<std::byte*>(header.data()), header.size()},
                     {const_cast<std::byte*>(payload.data()), payload.size()}};
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = 2;
  auto left = header.size() + payload.size();
  while (left > 0) {
    auto sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    if (sent <= 0) throw std::runtime_error("write failed");
    left -= static_cast<std::size_t>(sent);
    for (auto& piece : pieces) {
      auto taken = std::min<std::size_t>(piece.iov_len, static_cast<std::size_t>(sent));
      piece.iov_base = static_cast<char*>(piece.iov_base) + taken;
      piece.iov_len -= taken;
      sent -= static_cast<ssize_t>(taken);
    }
  }
}

/// Two connected blocking sockets with the options of the transport's.
std::pair<int, int> connected_pair(bool unix_socket) {
  int ends[2];
  if (unix_socket) {
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) throw std::runtime_error("socketpair failed");
    return {ends[0], ends[1]};
  }
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw std::runtime_error("listen failed");
  ends[0] = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(ends[0], reinterpret_cast<sockaddr*>(&address), size) != 0)
    throw std::runtime_error("connect failed");
  ends[1] = accept(listener, nullptr, nullptr);
  close(listener);
  int one = 1;
  for (int end : ends) setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  return {ends[0], ends[1]};
}

/// The same with blocking calls.
double run_blocking(const Case& c, const Settings& settings) {
  auto sent = pattern(c.payload_bytes);
  std::vector<std::byte> received(c.payload_bytes);
  auto [client, server] = connected_pair(settings.unix_socket);
  constexpr std::uint64_t kLast = ~std::uint64_t{0};
  std::thread serving([&, server = server] {
    EncodedHeader raw;
    for (FrameHeader header; header.id != kLast;) {
      read_all(server, raw.data(), raw.size());
      header = decode_frame_header(raw);
      check_frame_crc(raw, {});
      if (header.payload_bytes > 0) read_all(server, received.data(), header.payload_bytes);
      write_frame(server, encode_frame_header({FrameKind::Reply, 1, header.id, 0, 0, 0}, {}), {});
    }
  });
  std::counting_semaphore<> slots(c.window);
  std::thread replies([&, client = client] {
    EncodedHeader raw;
    for (FrameHeader header; header.id != kLast;) {
      read_all(client, raw.data(), raw.size());
      header = decode_frame_header(raw);
      slots.release();
    }
  });
  std::uint64_t id = 0;
  const double rate = measure(c, settings, slots, [&, client = client] {
    write_frame(client, encode_frame_header({FrameKind::Request, 1, ++id, c.payload_bytes, 0, 0}, {}), sent);
  });
  write_frame(client, encode_frame_header({FrameKind::Request, 1, kLast, 0, 0, 0}, {}), {});
  serving.join();
  replies.join();
  close(client);
  close(server);
  verify(received, sent);
  return rate;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void run_case(const Case& c, const Settings& settings) {
  std::vector<double> transport, blocking;
  for (int round = 0; round < settings.rounds; ++round) {  // interleaved, each first in turn
    if (round % 2) blocking.push_back(run_blocking(c, settings));
    transport.push_back(run_transport(c, settings));
    if (round % 2 == 0) blocking.push_back(run_blocking(c, settings));
  }
  auto t = median(transport), b = median(blocking);
  auto gigabytes = static_cast<double>(c.payload_bytes) * 1e-9;
  fmt::print(
      "{{\"bench\":\"transport\",\"socket\":\"{}\",\"payload_bytes\":{},\"window\":{},\"rounds\":{},"
      "\"seconds\":{},"
      "\"cores\":{},\"messages_per_second\":{:.0f},\"gb_per_second\":{:.3f},\"blocking_messages_per_second\":"
      "{:.0f},"
      "\"blocking_gb_per_second\":{:.3f},\"share_of_blocking\":{:.3f}}}\n",
      settings.unix_socket ? "unix" : "tcp", c.payload_bytes, c.window, settings.rounds, settings.seconds,
      std::thread::hardware_concurrency(), t, t * gigabytes, b, b * gigabytes, t / b);
  std::fflush(stdout);
}

int main_of(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    std::string option = argv[i];
    if (option == "--unix") {
      settings.unix_socket = true;
    } else if (option == "--seconds" && i + 1 < argc) {
      settings.seconds = std::stod(argv[++i]);
    } else if (option == "--rounds" && i + 1 < argc) {
      settings.rounds = std::stoi(argv[++i]);
    } else {
      fmt::print(stderr, "usage: transport_bench [--seconds S] [--rounds R] [--unix]\n");
      return 2;
    }
  }
  for (auto& c : {Case{0, 256}, Case{4 << 10, 256}, Case{64 << 10, 32}, Case{1 << 20, 8}, Case{4 << 20, 4}})
    run_case(c, settings);
  return 0;
}

}  // namespace
}  // namespace braid::comm

int main(int argc, char** argv) { return braid::comm::main_of(argc, argv); }
