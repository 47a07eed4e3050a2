#include "comm/transport/link.h"

#include <fmt/core.h>

#include <boost/asio/post.hpp>

#include "base/log.h"

namespace braid::comm {

Link::Link(std::shared_ptr<boost::asio::io_context> context, Settings settings)
    : context_(std::move(context)), settings_(std::move(settings)), timer_(*context_) {}

void Link::submit(std::unique_ptr<Call> call) {
  std::lock_guard lock(mutex_);
  submitted_.push_back(std::move(call));
  if (posted_) return;
  posted_ = true;
  boost::asio::post(*context_, [self = shared_from_this()] { self->take_submitted(); });
}

void Link::take_submitted() {
  std::vector<std::unique_ptr<Call>> submitted;
  {
    std::lock_guard lock(mutex_);
    posted_ = false;
    submitted.swap(submitted_);
  }
  for (auto& call : submitted) begin(std::move(call));
  deadlines_.compact(calls_.size(), [this](std::uint64_t id) { return alive(id); });
  arm_timer();
}

void Link::begin(std::unique_ptr<Call> call) {
  auto id = call->id;
  auto& entry = *(calls_[id] = std::move(call));
  deadlines_.add(entry.wait.deadline, id);
  if (entry.wait.stop.stop_possible()) {
    // The callback may run at once, here, or on any thread: it only posts.
    entry.on_stop.emplace(entry.wait.stop, [weak = weak_from_this(), context = context_, id] {
      boost::asio::post(*context, [weak, id] {
        if (auto self = weak.lock()) self->give_up(id, ErrorCode::Cancelled, "cancelled");
      });
    });
  }
  if (state_ == State::Open) return transmit(entry);
  unsent_.push_back(id);
  if (state_ == State::Idle) connect();
}

void Link::connect() {
  state_ = State::Connecting;
  connector_ = std::make_shared<Connector>(context_, settings_.parsed, settings_.connect_timeout);
  connector_->start([self = shared_from_this()](std::optional<Connector::Socket> socket, std::string reason) {
    self->connector_.reset();
    if (!socket) {
      self->state_ = State::Idle;
      return self->fail_all(ErrorCode::Unavailable, "cannot connect: " + reason);
    }
    auto connection =
        std::make_shared<Connection>(self->context_, std::move(*socket), self->settings_.address);
    self->connection_ = connection;
    connection->start(self, *self->settings_.streams, false, self->settings_.parsed.shared);
  });
}

void Link::on_open() {
  state_ = State::Open;
  auto unsent = std::move(unsent_);
  unsent_.clear();
  for (auto id : unsent)
    if (auto call = calls_.find(id); call != calls_.end()) transmit(*call->second);
}

void Link::transmit(Call& call) {
  OutgoingFrame frame;
  frame.kind = FrameKind::Request;
  frame.id = call.id;
  frame.message = std::move(call.request);
  try {
    connection_->send(std::move(frame));
  } catch (const Error& error) {
    call.sent = true;
    settle_error(call.id, error.code(), error.message());
  }
}

std::optional<PayloadSink> Link::on_head(const FrameHeader& header, Bytes meta) {
  switch (header.kind) {
    case FrameKind::Goodbye:
    case FrameKind::Error:
      if (header.payload_bytes == 0) return PayloadSink{};
      throw DataLoss("bad frame: an error with a payload");
    case FrameKind::Request:
      throw DataLoss("bad frame: a request is not for a client");
    case FrameKind::Reply:
      break;
  }
  auto found = calls_.find(header.id);
  if (found == calls_.end() || found->second->result)
    return std::nullopt;  // late: nobody waits for it any more
  try {
    if (!found->second->sink) return allocate_sink(header.payload_bytes);
    return found->second->sink({header.type, header.id, meta, header.payload_bytes, settings_.address});
  } catch (...) {
    auto error = capture_current_exception();
    settle_error(header.id, error->code, error->message);
    return std::nullopt;
  }
}

void Link::on_frame(const FrameHeader& header, std::vector<std::byte> meta, PayloadSink payload) {
  if (header.kind == FrameKind::Reply)
    return settle(header.id, {nullptr, {header.type, std::move(meta), std::move(payload)}});
  auto error = decode_error_meta(meta);
  if (header.kind == FrameKind::Error) return settle_error(header.id, error.code, error.message);
  connection_->close("was closed by the server: " + error.message);
}

void Link::on_sent(std::uint64_t id) {
  auto found = calls_.find(id);
  if (found == calls_.end()) return;
  auto& call = *found->second;
  call.sent = true;
  if (call.result) settle(id, std::move(*call.result));
}

void Link::on_closed(const std::string& reason) {
  connection_.reset();
  bool was_open = state_ == State::Open;
  state_ = State::Idle;
  fail_all(ErrorCode::Unavailable,
           was_open ? "the connection " + reason : "cannot connect: the connection " + reason);
}

void Link::fail_all(ErrorCode code, const std::string& text) {
  auto calls = std::move(calls_);
  calls_.clear();
  unsent_.clear();
  for (auto& [id, call] : calls) {
    auto result = call->result
                      ? std::move(*call->result)
                      : CallResult{make_error(code, fmt::format("{}: {}", settings_.address, text)), {}};
    finish(std::move(call), std::move(result));
  }
}

void Link::settle(std::uint64_t id, CallResult result) {
  auto found = calls_.find(id);
  if (found == calls_.end()) return;
  if (!found->second->sent) {  // the server answered before it read everything
    found->second->result = std::move(result);
    return;
  }
  auto call = std::move(found->second);
  calls_.erase(found);
  finish(std::move(call), std::move(result));
}

void Link::settle_error(std::uint64_t id, ErrorCode code, const std::string& text) {
  settle(id, {make_error(code, fmt::format("{}: {}", settings_.address, text)), {}});
}

void Link::give_up(std::uint64_t id, ErrorCode code, const std::string& text) {
  auto found = calls_.find(id);
  if (found == calls_.end()) return;
  auto call = std::move(found->second);
  calls_.erase(found);
  if (connection_ && state_ == State::Open) {
    connection_->abandon_payload(id);
    // Half a frame cannot be taken back, and finishing it would read memory that is the caller's again.
    if (!call->sent && !connection_->take_back(id))
      connection_->close(fmt::format("was closed: request type {} was given up half-way", call->type));
  }
  auto message = fmt::format("{}: request type {}: {}", settings_.address, call->type, text);
  auto result = call->result ? std::move(*call->result) : CallResult{make_error(code, message), {}};
  finish(std::move(call), std::move(result));
}

void Link::finish(std::unique_ptr<Call> call, CallResult result) {
  call->on_stop.reset();
  try {
    call->done(std::move(result));
  } catch (...) {
    log_error("transport: {}: callback of request type {}: {}", settings_.address, call->type,
              capture_current_exception()->message);
  }
}

void Link::expire_due() {
  armed_.reset();
  auto now = WaitContext::Clock::now();
  while (auto id = deadlines_.take_due(now)) {
    give_up(*id, ErrorCode::DeadlineExceeded,
            state_ == State::Open ? "no answer before the deadline" : "no connection before the deadline");
  }
  arm_timer();
}

void Link::arm_timer() {
  auto next = deadlines_.next([this](std::uint64_t id) { return alive(id); });
  if (!next || (armed_ && *armed_ <= *next)) return;
  armed_ = next;
  timer_.expires_at(*next);
  timer_.async_wait([self = shared_from_this()](auto error) {
    if (!error) self->expire_due();
  });
}

void Link::shut_down() {
  take_submitted();
  if (connector_) {
    connector_->cancel();
    connector_.reset();
  }
  if (connection_) connection_->close("was closed: the channel was destroyed");
  fail_all(ErrorCode::Cancelled, "the channel was destroyed");
  boost::system::error_code ignored;
  timer_.cancel(ignored);
}

}  // namespace braid::comm
