// The data plane: framed binary requests and replies over TCP, Unix sockets or, between processes of one
// host, shared memory, sent from and received into the caller's memory without a copy in between. Knows
// nothing of tables or gradients. docs/design/formats/wire.md has the grammar.
//
// A message is {type, id, meta, payload}: `meta` is a few hundred bytes that the receiver needs in order to
// decide where the payload shall land, the payload is any number of bytes, gathered from pieces on the
// sending side. Boost.Asio stays behind the .cc files. Every frame carries a CRC-32C of header and meta.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/wait_context.h"
#include "comm/transport/security.h"

namespace braid::comm {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

/// What is sent. `payload` pieces must stay valid and unchanged until the message is sent; `keep_alive` is
/// held until then.
struct OutgoingMessage {
  std::uint16_t type = 0;
  std::vector<std::byte> meta;
  std::vector<Bytes> payload;
  std::shared_ptr<void> keep_alive;
};

/// The part of a message that arrives first.
struct IncomingHead {
  std::uint16_t type = 0;
  std::uint64_t id = 0;
  Bytes meta;  // valid during the call only
  std::uint64_t payload_bytes = 0;
  std::string_view peer;  // "10.0.0.7:41022", valid during the call only
};

/// Where a payload lands. The destinations, in order, must add up to payload_bytes exactly.
struct PayloadSink {
  std::vector<MutableBytes> destinations;
  std::shared_ptr<void> keep_alive;
};

struct IncomingMessage {
  std::uint16_t type = 0;
  std::vector<std::byte> meta;
  PayloadSink payload;
};

/// Answers one request, once, from any thread, at any later time. Destroyed unused, it answers Internal.
class Responder {
 public:
  struct Impl;
  explicit Responder(std::shared_ptr<Impl> impl);
  Responder(Responder&&) noexcept;
  Responder& operator=(Responder&&) noexcept;
  ~Responder();
  void reply(OutgoingMessage message);
  /// The caller's call() throws this error.
  void fail(const ErrorRecord& error);

 private:
  std::shared_ptr<Impl> impl_;
};

/// Takes requests. Thread rule: on_head and on_request run on the server's I/O threads and must not block;
/// on_disconnect is called once for each connection that ends.
struct RequestHandler {
  /// Chooses where the payload lands, before it is read. A throw answers the request with that error and
  /// skips the payload.
  std::function<PayloadSink(const IncomingHead&)> on_head;
  std::function<void(IncomingMessage, Responder, std::uint64_t connection)> on_request;
  std::function<void(std::uint64_t connection)> on_disconnect;
};

struct TransportServerOptions {
  std::string listen = "0.0.0.0:0";  // "host:port" (port 0 picks a free one), "unix:/path" or "shm:/path"
  int io_threads = 1;
  std::uint64_t max_payload_bytes = std::uint64_t{4} << 30;
  /// Nothing is read from a client before it has proved itself, for which it has a few seconds.
  Security security{};
};

class TransportServer {
 public:
  /// Throws: Unavailable when the address cannot be bound (with the address and the reason).
  static std::unique_ptr<TransportServer> start(TransportServerOptions options, RequestHandler handler);
  virtual ~TransportServer() = default;
  /// "host:port" with the port that was bound.
  virtual std::string address() const = 0;
  /// Stops accepting, closes connections, joins threads. Idempotent; ends within `wait`.
  virtual void stop(const WaitContext& wait) = 0;
};

struct CallResult {
  ErrorPtr error;         // null when the call worked
  IncomingMessage reply;  // empty when it did not
};

/// Calls to one server, over one or more connections; many calls may be in flight. Thread-safe.
/// A lost connection fails the calls in flight with Unavailable and is made anew by the next call.
class Channel {
 public:
  struct Options {
    int connections = 1;
    std::chrono::milliseconds connect_timeout{5000};
    Security security{};
  };
  /// Does not connect yet. `address`: "host:port", "unix:/path" or "shm:/path", as its server listens.
  static std::shared_ptr<Channel> create(std::string address, Options options);
  virtual ~Channel() = default;

  using SinkFn = std::function<PayloadSink(const IncomingHead&)>;
  using DoneFn = std::function<void(CallResult)>;
  /// `sink` chooses where the reply's payload lands; `done` is called exactly once, on an I/O thread, and
  /// must not block. A call past its deadline completes with DeadlineExceeded, and its payload is never
  /// written to afterwards.
  virtual void call_async(OutgoingMessage request, SinkFn sink, DoneFn done, const WaitContext& wait) = 0;
  /// The same, blocking. Throws what the server answered, Unavailable, DeadlineExceeded or Cancelled, with
  /// the address.
  virtual IncomingMessage call(OutgoingMessage request, SinkFn sink, const WaitContext& wait) = 0;
  virtual const std::string& address() const = 0;
};

/// A sink that allocates: the payload arrives in one fresh block, held by keep_alive.
PayloadSink allocate_sink(std::uint64_t bytes);

}  // namespace braid::comm
