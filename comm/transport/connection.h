// One connection that carries frames both ways: reading, the queue of frames to write, closing. Used by both
// sides; what frames mean is the owner's business (Connection::Owner).
//
// Thread rule: everything runs on the thread of the io_context, except send(), which any thread may call.
// Memory rule: payload pieces and destinations are touched only while a member function runs on that thread.
#pragma once

#include <utility>
// Boost 1.74 uses std::exchange without including it.
#include <atomic>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/transport/frame_reader.h"
#include "comm/transport/stream.h"

namespace braid::comm {

struct OutgoingFrame {
  FrameKind kind = FrameKind::Request;
  std::uint64_t id = 0;
  OutgoingMessage message;
  EncodedHeader header{};  // filled in by Connection::send
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;

  struct Owner {
    virtual ~Owner() = default;
    virtual void on_open() = 0;
    /// See FrameReader::Callbacks. A DataLoss thrown here ends the connection as a bad frame does.
    virtual std::optional<PayloadSink> on_head(const FrameHeader& header, Bytes meta) = 0;
    virtual void on_frame(const FrameHeader& header, std::vector<std::byte> meta, PayloadSink payload) = 0;
    /// The frame is written; its pieces are no longer needed.
    virtual void on_sent(std::uint64_t id) = 0;
    /// The last call. `reason` reads after "the connection ".
    virtual void on_closed(const std::string& reason) = 0;
  };

  Connection(std::shared_ptr<boost::asio::io_context> context, Socket socket, std::string peer);
  ~Connection();

  /// Takes over the connected socket. `owner` is held until on_closed was called.
  /// A client that has not proved itself a few seconds later is let go.
  /// `shared`: see StreamFactory::make.
  void start(std::shared_ptr<Owner> owner, const StreamFactory& streams, bool server, bool shared = false);

  /// Queues a frame. False: the connection is closed and the frame is dropped. Throws: InvalidArgument (meta
  /// too long).
  bool send(OutgoingFrame frame);

  /// Takes a queued frame back. False: a part of it is already written, so only closing ends the use of its
  /// pieces.
  bool take_back(std::uint64_t id);
  void abandon_payload(std::uint64_t id) { reader_.abandon_payload(id); }

  /// Closes at once.
  void close(const std::string& reason);
  /// Sends a Goodbye with the error behind what is queued, stops reading frames, and closes when the peer has
  /// had the time to read it: closing with unread input would reset the connection and lose it.
  void close_after_goodbye(const ErrorRecord& error);

  /// Closes at once; the Goodbye arrives if the socket takes it now.
  void close_with_goodbye(const ErrorRecord& error);

  const std::string& peer() const { return peer_; }
  const std::shared_ptr<boost::asio::io_context>& context() const { return context_; }

 private:
  void handshake();
  void read_turn();
  void write_turn();
  void read_frames();
  void write_frames();
  void rung_turn();
  bool write_some();
  void retire_sent(std::size_t bytes);
  void adopt_incoming();
  void wait_for(Readiness readiness, void (Connection::*then)());
  void bad_frame(const std::string& text);
  void queue_goodbye(const ErrorRecord& error);
  void finish_goodbye();
  std::string end_reason(const IoStatus& status) const;

  // Set once.
  const std::shared_ptr<boost::asio::io_context> context_;
  const std::string peer_;
  bool server_ = false;

  // I/O thread only.
  Socket socket_;
  std::unique_ptr<Stream> stream_;
  std::shared_ptr<Owner> owner_;
  FrameReader reader_;
  bool open_ = false;  // handshake done, not closed
  bool saying_goodbye_ = false;
  bool goodbye_sent_ = false;
  bool reading_paused_ = false;
  bool write_waits_ = false;
  bool bell_awaited_ = false;            // of streams that ring
  boost::asio::steady_timer end_timer_;  // of the handshake, and of a goodbye
  std::deque<OutgoingFrame> queue_;
  std::size_t front_written_ = 0;  // bytes of queue_.front() that are written
  std::uint64_t queued_bytes_ = 0;

  std::mutex mutex_;
  bool closed_ = false;                  // guarded by mutex_
  bool turn_posted_ = false;             // guarded by mutex_
  std::vector<OutgoingFrame> incoming_;  // guarded by mutex_; moves to queue_
};

}  // namespace braid::comm
