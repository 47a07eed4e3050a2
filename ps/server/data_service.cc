#include "ps/server/data_service.h"

#include <fmt/format.h>

#include <bit>

#include "ps/wire.h"

static_assert(std::endian::native == std::endian::little, "payloads are little-endian and are not converted");

namespace braid::ps {
namespace {

using comm::IncomingHead;
using comm::IncomingMessage;
using comm::OutgoingMessage;
using comm::Responder;

void answer(Responder& responder, std::uint16_t type, const ReplyHead& head) {
  OutgoingMessage reply;
  reply.type = type;
  reply.meta = encode(head);
  responder.reply(std::move(reply));
}

struct Announced {
  Sender sender;
  std::uint64_t bytes = 0;
};

Announced announced(std::uint16_t type, comm::Bytes meta) {
  switch (static_cast<MessageType>(type)) {
    case MessageType::Push:
    case MessageType::Assign: {
      const PushHead head = decode_push(meta);
      return {head.sender, key_bytes(head.sparse) + value_bytes(head.dense) + value_bytes(head.sparse)};
    }
    case MessageType::Pull: {
      const PullHead head = decode_pull(meta);
      return {head.sender, sent_bytes(head)};
    }
    case MessageType::Heartbeat:
      return {decode_heartbeat(meta), 0};
  }
  throw DataLoss(fmt::format("[ps] unknown message type {}", type));
}

class DataService {
 public:
  DataService(ServerCore& core, unsigned listener) : core_(core), listener_(listener) {}

  comm::PayloadSink on_head(const IncomingHead& head) {
    const auto [sender, expected] = announced(head.type, head.meta);
    if (expected != head.payload_bytes)
      throw DataLoss(fmt::format("[ps] message type {} announces {} bytes and has {}", head.type, expected,
                                 head.payload_bytes));
    comm::PayloadSink sink;
    if (expected == 0) return sink;
    // No memory for messages to another instance; what else is wrong with a sender the core says later.
    if (sender.instance != core_.instance())
      throw Unavailable(fmt::format("[ps] this server is instance {:016x}, the message is for {:016x}",
                                    core_.instance(), sender.instance));
    auto block = core_.pool().take(expected);
    sink.destinations = {{block.get(), expected}};
    sink.keep_alive = std::move(block);
    return sink;
  }

  void on_request(IncomingMessage message, Responder responder, std::uint64_t connection) {
    switch (static_cast<MessageType>(message.type)) {
      case MessageType::Push:
        return push(std::move(message), std::move(responder), connection);
      case MessageType::Pull:
        return pull(std::move(message), std::move(responder), connection);
      case MessageType::Assign:
        return assign(std::move(message), std::move(responder), connection);
      case MessageType::Heartbeat: {
        ReplyHead head;
        head.error = core_.heard(decode_heartbeat(message.meta), tagged(connection));
        return answer(responder, message.type, head);
      }
    }
  }

  void on_disconnect(std::uint64_t connection) { core_.disconnected(tagged(connection)); }

 private:
  std::uint64_t tagged(std::uint64_t connection) const { return connection * 16 + listener_; }

  static const std::byte* payload_of(const IncomingMessage& message) {
    return message.payload.destinations.empty() ? nullptr : message.payload.destinations[0].data();
  }

  /// Answers and gives false when the sender is not welcome.
  bool admitted(const Sender& sender, const IncomingMessage& message, Responder& responder,
                std::uint64_t connection) {
    ReplyHead head;
    head.error = core_.heard(sender, tagged(connection));
    if (!head.error) return true;
    core_.answered(sender, head.error);
    core_.counters()->add(Count::RequestsRefused);
    answer(responder, message.type, head);
    return false;
  }

  void push(IncomingMessage message, Responder responder, std::uint64_t connection) {
    const PushHead head = decode_push(message.meta);
    if (!admitted(head.sender, message, responder, connection)) return;
    PushJob job{
        head.sender, head.step, head.sequence, head.examples, head.params, {}, {}, message.payload.keep_alive,
        {}};
    job.votes_to_stop = head.votes_to_stop;
    job.votes_to_finish = head.votes_to_finish;
    job.trial = head.trial;
    locate(head, payload_of(message), job.dense, job.sparse);
    auto shared = std::make_shared<Responder>(std::move(responder));
    job.done = [shared, type = message.type](const PushAnswer& result) {
      answer(*shared, type, {result.error, result.result, result.reason, 0});
    };
    core_.push(std::move(job));
  }

  void pull(IncomingMessage message, Responder responder, std::uint64_t connection) {
    const PullHead head = decode_pull(message.meta);
    if (!admitted(head.sender, message, responder, connection)) return;
    PullJob job;
    job.sender = head.sender;
    job.min_version = head.min_version;
    job.insert = head.insert;
    job.kind = head.kind;
    job.ahead = head.ahead;
    job.slots = head.slots;
    job.trial = head.trial;
    job.deadline = Clock::now() + std::chrono::milliseconds(head.timeout_ms);
    for (const PartHead& part : head.dense) job.dense.push_back(part.table);
    job.hold = message.payload.keep_alive;
    locate(head, payload_of(message), job.sparse);
    auto shared = std::make_shared<Responder>(std::move(responder));
    job.done = [shared, type = message.type](PullAnswer result) {
      OutgoingMessage reply;
      reply.type = type;
      reply.meta = encode(ReplyHead{result.error,
                                    PushResult::Applied,
                                    {},
                                    result.version,
                                    result.stop,
                                    result.finish,
                                    result.unknown,
                                    result.repaired});
      for (const auto& piece : result.pieces) reply.payload.push_back(std::as_bytes(piece));
      reply.keep_alive = std::const_pointer_cast<void>(result.hold);
      shared->reply(std::move(reply));
    };
    core_.pull(std::move(job));
  }

  void assign(IncomingMessage message, Responder responder, std::uint64_t connection) {
    const PushHead head = decode_push(message.meta);
    if (!admitted(head.sender, message, responder, connection)) return;
    AssignJob job{head.sender, {}, message.payload.keep_alive, {}};
    job.trial = head.trial;
    locate(head, payload_of(message), job.dense, job.rows);
    auto shared = std::make_shared<Responder>(std::move(responder));
    job.done = [shared, type = message.type](ErrorPtr error) {
      ReplyHead reply;
      reply.error = std::move(error);
      answer(*shared, type, reply);
    };
    core_.assign(std::move(job));
  }

  ServerCore& core_;
  const unsigned listener_;
};

}  // namespace

comm::RequestHandler make_data_handler(ServerCore& core, unsigned listener) {
  auto service = std::make_shared<DataService>(core, listener);
  comm::RequestHandler handler;
  handler.on_head = [service](const IncomingHead& head) { return service->on_head(head); };
  handler.on_request = [service](IncomingMessage message, Responder responder, std::uint64_t connection) {
    service->on_request(std::move(message), std::move(responder), connection);
  };
  handler.on_disconnect = [service](std::uint64_t connection) { service->on_disconnect(connection); };
  return handler;
}

}  // namespace braid::ps
