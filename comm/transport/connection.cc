#include "comm/transport/connection.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>

#include "base/log.h"

namespace braid::comm {
namespace {

constexpr std::size_t kMaxPieces = 128;  // of one system call
constexpr int kReadsPerTurn = 16;        // then other connections have theirs
// Requests are not read while this much of the answers waits for the peer to read them.
constexpr std::uint64_t kMaxQueuedBytes = std::uint64_t{256} << 20;
constexpr std::chrono::seconds kGoodbyeTime{1};
constexpr std::chrono::seconds kHandshakeTime{5};

std::size_t frame_bytes(const OutgoingFrame& frame) {
  auto bytes = kFrameHeaderBytes + frame.message.meta.size();
  for (auto& piece : frame.message.payload) bytes += piece.size();
  return bytes;
}

}  // namespace

Connection::Connection(std::shared_ptr<boost::asio::io_context> context, Socket socket, std::string peer)
    : context_(std::move(context)),
      peer_(std::move(peer)),
      socket_(std::move(socket)),
      reader_({[this](const FrameHeader& header, Bytes meta) { return owner_->on_head(header, meta); },
               [this](const FrameHeader& header, std::vector<std::byte> meta, PayloadSink payload) {
                 owner_->on_frame(header, std::move(meta), std::move(payload));
               }}),
      end_timer_(*context_) {}

Connection::~Connection() = default;

void Connection::start(std::shared_ptr<Owner> owner, const StreamFactory& streams, bool server, bool shared) {
  owner_ = std::move(owner);
  server_ = server;
  boost::system::error_code ignored;
  socket_.native_non_blocking(true, ignored);
  stream_ = streams.make(socket_.native_handle(), server, shared);
  if (server) {
    end_timer_.expires_after(kHandshakeTime);
    end_timer_.async_wait([self = shared_from_this()](auto error) {
      if (error || self->open_ || !self->owner_) return;
      warn_of_refusal(fmt::format("transport: {}: refused: it did not prove itself within {} s", self->peer_,
                                  kHandshakeTime.count()));
      self->close("was closed: it did not prove itself in time");
    });
  }
  handshake();
}

void Connection::handshake() {
  auto status = stream_->handshake();
  if (status.ended) {
    if (server_) warn_of_refusal(fmt::format("transport: {}: refused: {}", peer_, end_reason(status)));
    return close(end_reason(status));
  }
  if (status.wait) return wait_for(*status.wait, &Connection::handshake);
  open_ = true;
  boost::system::error_code ignored;
  end_timer_.cancel(ignored);
  owner_->on_open();
  write_turn();
  if (open_) read_turn();
}

bool Connection::send(OutgoingFrame frame) {
  FrameHeader header;
  header.kind = frame.kind;
  header.type = frame.message.type;
  header.id = frame.id;
  for (auto& piece : frame.message.payload) header.payload_bytes += piece.size();
  frame.header = encode_frame_header(header, frame.message.meta);
  std::lock_guard lock(mutex_);
  if (closed_) return false;
  incoming_.push_back(std::move(frame));
  if (!turn_posted_) {
    // One posted turn writes all frames that are queued until it runs, with few system calls.
    turn_posted_ = true;
    boost::asio::post(*context_, [self = shared_from_this()] { self->write_turn(); });
  }
  return true;
}

void Connection::adopt_incoming() {
  std::vector<OutgoingFrame> arrived;
  {
    std::lock_guard lock(mutex_);
    turn_posted_ = false;
    arrived.swap(incoming_);
  }
  for (auto& frame : arrived) {
    queued_bytes_ += frame_bytes(frame);
    queue_.push_back(std::move(frame));
  }
}

/// A stream that rings has one kind of turn, since a bell may concern both directions, and whoever takes it
/// must look at both.
void Connection::rung_turn() {
  if (!stream_ || !open_) return adopt_incoming();
  const bool gone = stream_->take_bells();
  read_frames();
  write_waits_ = false;
  if (open_ && (!gone || reading_paused_))
    write_frames();
  else
    adopt_incoming();
}

void Connection::write_turn() {
  if (!stream_) return;
  if (stream_->rings()) return rung_turn();
  write_frames();
}

void Connection::write_frames() {
  adopt_incoming();
  if (!open_ || write_waits_) return;
  while (open_ && !queue_.empty())
    if (!write_some()) return;
  if (!open_) return;
  if (auto status = stream_->flush(); status.ended) {
    return close(end_reason(status));
  } else if (status.wait) {
    write_waits_ = true;
    return wait_for(*status.wait, &Connection::write_turn);
  }
  if (saying_goodbye_) finish_goodbye();
}

bool Connection::write_some() {
  std::array<iovec, kMaxPieces> pieces;
  std::size_t used = 0;
  auto skip = front_written_;
  auto add = [&](const std::byte* data, std::size_t bytes) {
    auto skipped = std::min(skip, bytes);
    skip -= skipped;
    if (bytes > skipped && used < kMaxPieces)
      pieces[used++] = {const_cast<std::byte*>(data + skipped), bytes - skipped};
  };
  for (auto& frame : queue_) {
    if (used >= kMaxPieces) break;
    add(frame.header.data(), frame.header.size());
    add(frame.message.meta.data(), frame.message.meta.size());
    for (auto& piece : frame.message.payload) {
      if (used >= kMaxPieces) break;
      add(piece.data(), piece.size());
    }
  }
  auto status = stream_->write({pieces.data(), used});
  if (status.bytes > 0) retire_sent(status.bytes);
  if (!open_) return false;
  if (status.ended) {
    close(end_reason(status));
    return false;
  }
  if (status.wait) {
    write_waits_ = true;
    wait_for(*status.wait, &Connection::write_turn);
    return false;
  }
  return true;
}

void Connection::retire_sent(std::size_t bytes) {
  front_written_ += bytes;
  while (!queue_.empty()) {
    auto size = frame_bytes(queue_.front());
    if (front_written_ < size) break;
    front_written_ -= size;
    queued_bytes_ -= size;
    auto id = queue_.front().id;
    queue_.pop_front();
    owner_->on_sent(id);
    if (!open_) return;
  }
  if (reading_paused_ && queued_bytes_ <= kMaxQueuedBytes / 2) {
    reading_paused_ = false;
    boost::asio::post(*context_, [self = shared_from_this()] { self->read_turn(); });
  }
}

bool Connection::take_back(std::uint64_t id) {
  adopt_incoming();
  auto frame = std::find_if(queue_.begin(), queue_.end(), [&](auto& queued) { return queued.id == id; });
  if (frame == queue_.end()) return true;
  if (frame == queue_.begin() && front_written_ > 0) return false;
  queued_bytes_ -= frame_bytes(*frame);
  queue_.erase(frame);
  return true;
}

void Connection::read_turn() {
  if (!open_) return;
  if (stream_->rings()) return rung_turn();
  read_frames();
}

void Connection::read_frames() {
  for (int turn = 0; turn < kReadsPerTurn; ++turn) {
    if (queued_bytes_ > kMaxQueuedBytes && !saying_goodbye_) {
      reading_paused_ = true;
      return;
    }
    std::array<iovec, kMaxPieces> pieces;
    auto used = reader_.prepare(pieces);
    auto status = stream_->read({pieces.data(), used});
    if (status.bytes > 0) {
      try {
        reader_.commit(status.bytes);
      } catch (...) {
        bad_frame(capture_current_exception()->message);
      }
      if (!open_) return;
    }
    if (status.ended) return close(end_reason(status));
    if (status.wait) return wait_for(*status.wait, &Connection::read_turn);
  }
  boost::asio::post(*context_, [self = shared_from_this()] { self->read_turn(); });
}

void Connection::bad_frame(const std::string& text) {
  log_warning("transport: {}: {}; closing the connection", peer_, text);
  if (server_)
    close_after_goodbye({ErrorCode::DataLoss, text});
  else
    close("was closed: " + text);
}

void Connection::close_after_goodbye(const ErrorRecord& error) {
  if (!open_ || saying_goodbye_) return;
  reader_.halt();
  queue_goodbye(error);
  saying_goodbye_ = true;
  end_timer_.expires_after(kGoodbyeTime);
  end_timer_.async_wait([self = shared_from_this(), text = error.message](auto error) {
    if (!error) self->close("was closed: " + text);
  });
  if (reading_paused_) {
    reading_paused_ = false;
    boost::asio::post(*context_, [self = shared_from_this()] { self->read_turn(); });
  }
}

void Connection::close_with_goodbye(const ErrorRecord& error) {
  if (open_ && !saying_goodbye_) {
    queue_goodbye(error);
    write_turn();
  }
  close("was closed: " + error.message);
}

void Connection::queue_goodbye(const ErrorRecord& error) {
  OutgoingFrame frame;
  frame.kind = FrameKind::Goodbye;
  frame.message.meta = encode_error_meta(error);
  send(std::move(frame));
}

void Connection::finish_goodbye() {
  if (goodbye_sent_) return;
  goodbye_sent_ = true;
  boost::system::error_code ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
}

void Connection::close(const std::string& reason) {
  if (!owner_) return;
  auto self = shared_from_this();  // on_closed may drop the last other reference
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    incoming_.clear();
  }
  open_ = false;
  reader_.halt();
  auto owner = std::move(owner_);
  boost::system::error_code ignored;
  end_timer_.cancel(ignored);
  socket_.close(ignored);
  owner->on_closed(reason);
  // What is being written, read or called may be further up the stack: let go of it later.
  boost::asio::post(*context_, [self, owner] {
    self->stream_.reset();
    self->queue_.clear();
  });
}

void Connection::wait_for(Readiness readiness, void (Connection::*then)()) {
  auto kind = readiness == Readiness::Read ? Socket::wait_read : Socket::wait_write;
  if (open_ && stream_->rings()) {
    if (std::exchange(bell_awaited_, true)) return;
    return socket_.async_wait(kind, [self = shared_from_this()](boost::system::error_code error) {
      self->bell_awaited_ = false;
      if (!error && self->owner_) self->rung_turn();
    });
  }
  socket_.async_wait(kind, [self = shared_from_this(), then](boost::system::error_code error) {
    if (error || !self->owner_) return;
    if (then == &Connection::write_turn) self->write_waits_ = false;
    (self.get()->*then)();
  });
}

std::string Connection::end_reason(const IoStatus& status) const {
  if (!status.error.empty()) return "was lost: " + status.error;
  return reader_.mid_frame() ? "was closed by the peer in the middle of a frame" : "was closed by the peer";
}

}  // namespace braid::comm
