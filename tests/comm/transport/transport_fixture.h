// A server that answers a few request types, and helpers that make and read messages. Real sockets on the
// loopback.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/transport/transport.h"
#include "tests/comm/error_of.h"

namespace braid::comm {

using namespace std::chrono_literals;

/// A minute is far beyond what anything here takes, on a machine that is busy with other things.
inline WaitContext within(std::chrono::milliseconds timeout) { return WaitContext::with_timeout(timeout); }

inline std::vector<std::byte> to_bytes(std::string_view text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

inline std::string to_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>((i * 31 + i / 251 + seed) & 0xff);
  return data;
}

inline std::vector<std::byte> gather(const PayloadSink& sink) {
  std::vector<std::byte> all;
  for (auto& piece : sink.destinations) all.insert(all.end(), piece.begin(), piece.end());
  return all;
}

enum RequestType : std::uint16_t {
  kEcho = 1,    // the same meta and payload
  kFail = 2,    // InvalidArgument with meta as text
  kHold = 3,    // answered by release()
  kDrop = 4,    // the responder is destroyed
  kThrow = 5,   // the handler throws DataLoss
  kRefuse = 6,  // on_head throws OutOfMemory
};

class EchoServer {
 public:
  explicit EchoServer(TransportServerOptions options = {.listen = "127.0.0.1:0"}) {
    RequestHandler handler;
    handler.on_head = [](const IncomingHead& head) {
      if (head.type == kRefuse) throw OutOfMemory("no room for this payload");
      return allocate_sink(head.payload_bytes);
    };
    handler.on_request = [this](IncomingMessage message, Responder responder, std::uint64_t) {
      ++requests;
      switch (message.type) {
        case kEcho:
          responder.reply(echo(std::move(message)));
          return;
        case kFail:
          responder.fail({ErrorCode::InvalidArgument, to_text(message.meta)});
          return;
        case kHold: {
          std::lock_guard lock(mutex_);
          held_.emplace_back(std::move(message), std::move(responder));
          return;
        }
        case kThrow:
          throw DataLoss("thrown by the handler");
        default:
          return;
      }
    };
    handler.on_disconnect = [this](std::uint64_t) { ++disconnects; };
    server = TransportServer::start(std::move(options), std::move(handler));
  }
  ~EchoServer() { release(); }

  /// Answers what is held. Returns how many there were.
  std::size_t release() {
    std::lock_guard lock(mutex_);
    for (auto& [message, responder] : held_) responder.reply(echo(std::move(message)));
    auto count = held_.size();
    held_.clear();
    return count;
  }
  std::size_t held() {
    std::lock_guard lock(mutex_);
    return held_.size();
  }

  std::atomic<int> requests{0};
  std::atomic<int> disconnects{0};
  std::unique_ptr<TransportServer> server;

 private:
  static OutgoingMessage echo(IncomingMessage message) {
    OutgoingMessage reply{message.type, std::move(message.meta), {}, message.payload.keep_alive};
    for (auto& piece : message.payload.destinations) reply.payload.emplace_back(piece);
    return reply;
  }

  std::mutex mutex_;
  std::vector<std::pair<IncomingMessage, Responder>> held_;
};

template <class Condition>
bool eventually(Condition condition, std::chrono::milliseconds limit = 60s) {
  for (auto end = std::chrono::steady_clock::now() + limit; std::chrono::steady_clock::now() < end;
       std::this_thread::sleep_for(1ms))
    if (condition()) return true;
  return condition();
}

}  // namespace braid::comm
