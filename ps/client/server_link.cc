#include "ps/client/server_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>

namespace braid::ps {
namespace {

constexpr std::chrono::milliseconds kProbeTime{1000};
constexpr std::chrono::milliseconds kRetryPause{50};
constexpr std::chrono::milliseconds kLostTime{2000};  // to answer whether it is still there

std::chrono::milliseconds left_of(const WaitContext& wait) {
  constexpr std::chrono::milliseconds kLongest{std::uint32_t{0x7fffffff}};
  return std::min(kLongest, std::chrono::duration_cast<std::chrono::milliseconds>(wait.remaining()));
}

}  // namespace

struct ServerLink::Attempt {
  DataCall call;
  int tries = 0;
  std::string lost;  // why the first attempt was lost

  void finish(ErrorCode code, std::string message) { call.done(make_error(code, std::move(message)), {}); }
};

ServerLink::ServerLink(std::unique_ptr<ControlLink> control, RetryTimer& timer)
    : control_(std::move(control)), timer_(timer) {}

std::string ServerLink::name() const {
  return fmt::format("[ps] server {} ({})", control_->server(), control_->address());
}

void ServerLink::open(const Sender& sender, std::shared_ptr<comm::Channel> channel) {
  sender_ = sender;
  std::lock_guard lock(mutex_);
  channel_ = std::move(channel);
}

void ServerLink::close() {
  std::shared_ptr<comm::Channel> channel;
  {
    std::lock_guard lock(mutex_);
    channel = std::move(channel_);
  }
  channel.reset();
  control_->close_probes();
}

std::shared_ptr<comm::Channel> ServerLink::channel() {
  std::lock_guard lock(mutex_);
  return channel_;
}

void ServerLink::call(DataCall call) {
  auto attempt = std::make_shared<Attempt>();
  attempt->call = std::move(call);
  send(attempt);
}

void ServerLink::send(const std::shared_ptr<Attempt>& attempt) {
  const DataCall& call = attempt->call;
  const auto channel = this->channel();
  if (!channel || call.wait.stopped())
    return attempt->finish(ErrorCode::Cancelled, fmt::format("{}: {}: cancelled", name(), call.what));
  ++attempt->tries;
  comm::OutgoingMessage message;
  message.type = static_cast<std::uint16_t>(call.type);
  message.meta = call.meta(left_of(call.wait));
  message.payload = call.payload;
  message.keep_alive = call.hold;
  channel->call_async(
      std::move(message),
      [attempt](const comm::IncomingHead& head) -> comm::PayloadSink {
        const ReplyHead reply = decode_reply(head.meta);
        if (reply.error || reply.unknown) return {};
        comm::PayloadSink sink{attempt->call.destinations, attempt->call.hold};
        if (!attempt->call.rest) return sink;
        std::uint64_t bytes = head.payload_bytes;
        for (const auto& destination : sink.destinations)
          bytes -= std::min<std::uint64_t>(bytes, destination.size());
        if (bytes > 0) sink.destinations.emplace_back(attempt->call.rest(bytes), bytes);
        return sink;
      },
      [self = shared_from_this(), attempt](const comm::CallResult& result) {
        self->answered(attempt, result);
      },
      call.wait);
}

void ServerLink::answered(const std::shared_ptr<Attempt>& attempt, const comm::CallResult& result) {
  const DataCall& call = attempt->call;
  if (!result.error) {
    heard();
    ReplyHead reply;
    try {
      reply = decode_reply(result.reply.meta);
    } catch (const Error& e) {
      return attempt->finish(e.code(), fmt::format("{}: {}: {}", name(), call.what, e.message()));
    }
    return call.done(reply.error, reply);
  }
  switch (result.error->code) {
    case ErrorCode::Unavailable:
      if (attempt->lost.empty()) attempt->lost = result.error->message;
      return look_for_server(attempt);
    case ErrorCode::DeadlineExceeded:
      return attempt->finish(
          ErrorCode::Unavailable,
          attempt->lost.empty()
              ? fmt::format("{} does not answer: {} is not done within its deadline", name(), call.what)
              : fmt::format("{} lost: {}; {} tries of {} until its deadline", name(), attempt->lost,
                            attempt->tries, call.what));
    default:
      return attempt->finish(result.error->code,
                             fmt::format("{}: {}: {}", name(), call.what, result.error->message));
  }
}

void ServerLink::look_for_server(const std::shared_ptr<Attempt>& attempt) {
  const DataCall& call = attempt->call;
  if (!channel() || call.wait.stopped())
    return attempt->finish(ErrorCode::Cancelled, fmt::format("{}: {}: cancelled", name(), call.what));
  if (call.wait.expired())
    return attempt->finish(ErrorCode::Unavailable,
                           fmt::format("{} lost: {}; {} tries of {} until its deadline", name(),
                                       attempt->lost, attempt->tries, call.what));
  control_->probe_async(std::min(kProbeTime, left_of(call.wait)), [self = shared_from_this(), attempt](
                                                                      std::optional<std::uint64_t> instance) {
    if (instance && *instance != self->sender_.instance)
      return attempt->finish(
          ErrorCode::Unavailable,
          fmt::format("{} lost: it was started again (instance {:016x}, before {:016x}) and its "
                      "state is gone",
                      self->name(), *instance, self->sender_.instance));
    self->timer_.after(kRetryPause, [self, attempt, instance](bool) {
      if (!instance) return self->look_for_server(attempt);
      self->retries_.fetch_add(1, std::memory_order_relaxed);
      self->send(attempt);
    });
  });
}

bool ServerLink::is_lost(const WaitContext& wait) {
  const auto until = std::min<std::chrono::milliseconds>(left_of(wait), kLostTime);
  auto answer = std::make_shared<std::promise<std::optional<std::uint64_t>>>();
  auto instance = answer->get_future();
  control_->probe_async(until, [answer](std::optional<std::uint64_t> found) { answer->set_value(found); });
  const auto found = instance.get();
  return !found || *found != sender_.instance;
}

void ServerLink::start_heartbeats(std::chrono::milliseconds period) {
  heard();
  period_ = period;
  beat(period);
}

void ServerLink::heard() { last_heard_ = std::chrono::steady_clock::now(); }

std::string ServerLink::describe_silence() const {
  const std::chrono::milliseconds period = period_;
  const auto silent = std::chrono::steady_clock::now() - last_heard_.load();
  if (period == std::chrono::milliseconds(0) || silent < 5 * period / 2) return {};
  return fmt::format("server {} ({}) has been silent for {:.1f} s", control_->server(), control_->address(),
                     std::chrono::duration<double>(silent).count());
}

void ServerLink::beat(std::chrono::milliseconds period) {
  const auto channel = this->channel();
  if (!channel) return;
  comm::OutgoingMessage message;
  message.type = static_cast<std::uint16_t>(MessageType::Heartbeat);
  message.meta = encode(sender_);
  channel->call_async(
      std::move(message), {},
      [self = shared_from_this()](const comm::CallResult& result) {
        if (!result.error) self->heard();
      },
      WaitContext::with_timeout(period * 2));
  timer_.after(period, [self = shared_from_this(), period](bool closing) {
    if (!closing) self->beat(period);
  });
}

}  // namespace braid::ps
