// The serving side: a listener, a connection an accepted socket, spread over the I/O threads.
#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <map>

#include "base/log.h"
#include "comm/transport/address.h"
#include "comm/transport/connection.h"
#include "comm/transport/endpoint.h"
#include "comm/transport/io_thread.h"
#include "comm/transport/listener.h"

namespace braid::comm {

/// One request that waits for its answer. Dropped unanswered, it answers that.
struct Responder::Impl {
  std::shared_ptr<Connection> connection;
  std::uint16_t type = 0;
  std::uint64_t id = 0;

  ~Impl() {
    if (!answered_) fail({ErrorCode::Internal, "the server dropped the request without an answer"});
  }

  void reply(OutgoingMessage message) {
    OutgoingFrame frame;
    frame.kind = FrameKind::Reply;
    frame.id = id;
    frame.message = std::move(message);
    answer(std::move(frame));
  }

  void fail(const ErrorRecord& error) {
    OutgoingFrame frame;
    frame.kind = FrameKind::Error;
    frame.id = id;
    frame.message.type = type;
    frame.message.meta = encode_error_meta(error);
    answer(std::move(frame));
  }

  bool answered() const { return answered_; }

 private:
  void answer(OutgoingFrame frame) {
    if (answered_.exchange(true)) return;
    try {
      connection->send(std::move(frame));
    } catch (...) {
      answered_ = false;  // the answer itself was bad; another one may follow
      throw;
    }
  }

  std::atomic<bool> answered_{false};
};

Responder::Responder(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Responder::Responder(Responder&&) noexcept = default;
Responder& Responder::operator=(Responder&&) noexcept = default;
Responder::~Responder() = default;

void Responder::reply(OutgoingMessage message) {
  impl_->reply(std::move(message));
  impl_.reset();
}

void Responder::fail(const ErrorRecord& error) {
  impl_->fail(error);
  impl_.reset();
}

namespace {

/// What the connections of one server share.
struct ServerCore {
  TransportServerOptions options;
  RequestHandler handler;
  std::shared_ptr<const StreamFactory> streams;
  bool shared = false;  // memory carries the bytes
  std::mutex mutex;
  std::map<std::uint64_t, std::shared_ptr<Connection>> connections;  // guarded by mutex
  std::uint64_t next_connection = 1;                                 // guarded by mutex
  bool stopping = false;                                             // guarded by mutex
  int unproven = 0;                                                  // guarded by mutex
};

class Session final : public Connection::Owner {
 public:
  Session(std::shared_ptr<ServerCore> core, std::shared_ptr<Connection> connection, std::uint64_t number)
      : core_(std::move(core)), connection_(std::move(connection)), number_(number) {}

  void on_open() override {
    std::lock_guard lock(core_->mutex);
    --core_->unproven;
    proven_ = true;
  }

  std::optional<PayloadSink> on_head(const FrameHeader& header, Bytes meta) override {
    if (header.kind != FrameKind::Request)
      throw DataLoss(fmt::format("bad frame: kind {} is not for a server", static_cast<int>(header.kind)));
    if (header.payload_bytes > core_->options.max_payload_bytes) {
      auto text = fmt::format("payload of {} bytes is over the server's limit of {}", header.payload_bytes,
                              core_->options.max_payload_bytes);
      fail(header, {ErrorCode::InvalidArgument, text});
      throw DataLoss(text);
    }
    try {
      if (!core_->handler.on_head) return allocate_sink(header.payload_bytes);
      return core_->handler.on_head(
          {header.type, header.id, meta, header.payload_bytes, connection_->peer()});
    } catch (...) {
      fail(header, *capture_current_exception());
      return std::nullopt;
    }
  }

  void on_frame(const FrameHeader& header, std::vector<std::byte> meta, PayloadSink payload) override {
    auto responder = std::make_shared<Responder::Impl>();
    responder->connection = connection_;
    responder->type = header.type;
    responder->id = header.id;
    auto spare = responder;  // answers with what the handler throws, when it has not answered
    try {
      core_->handler.on_request({header.type, std::move(meta), std::move(payload)},
                                Responder(std::move(responder)), number_);
    } catch (...) {
      auto error = capture_current_exception();
      log_warning("transport: {}: handler of request type {}: {}", connection_->peer(), header.type,
                  error->message);
      if (!spare->answered()) spare->fail(*error);
    }
  }

  void on_sent(std::uint64_t) override {}

  void on_closed(const std::string& reason) override {
    log_debug("transport: the connection from {} {}", connection_->peer(), reason);
    {
      std::lock_guard lock(core_->mutex);
      core_->connections.erase(number_);
      if (!proven_) --core_->unproven;
    }
    if (!proven_) return connection_.reset();
    try {
      if (core_->handler.on_disconnect) core_->handler.on_disconnect(number_);
    } catch (...) {
      log_error("transport: on_disconnect: {}", capture_current_exception()->message);
    }
    connection_.reset();
  }

 private:
  void fail(const FrameHeader& header, const ErrorRecord& error) {
    Responder::Impl answer;
    answer.connection = connection_;
    answer.type = header.type;
    answer.id = header.id;
    answer.fail(error);
  }

  std::shared_ptr<ServerCore> core_;
  std::shared_ptr<Connection> connection_;
  const std::uint64_t number_;
  bool proven_ = false;  // I/O thread only
};

/// A client without the token sends frames at once, and understands one.
std::vector<std::byte> what_strangers_hear() {
  const auto meta =
      encode_error_meta({ErrorCode::InvalidArgument,
                         "this server asks for the job's token, and the client knows of none (BRAID_TOKEN)"});
  FrameHeader header;
  header.kind = FrameKind::Goodbye;
  const auto encoded = encode_frame_header(header, meta);
  std::vector<std::byte> frame(encoded.begin(), encoded.end());
  frame.insert(frame.end(), meta.begin(), meta.end());
  return frame;
}

class TransportServerImpl final : public TransportServer {
 public:
  TransportServerImpl(TransportServerOptions options, RequestHandler handler)
      : core_(std::make_shared<ServerCore>()) {
    if (!handler.on_request) throw InvalidArgument("[transport] a server needs on_request");
    if (options.io_threads < 1)
      throw InvalidArgument(
          fmt::format("[transport] io_threads must be at least 1, got {}", options.io_threads));
    core_->handler = std::move(handler);
    core_->streams =
        std::make_shared<const StreamFactory>(options.security, kDataPurpose, what_strangers_hear());
    core_->shared = parse_address(listen_candidates(options.listen).front()).shared;
    core_->streams->require_for(core_->shared);
    core_->options = std::move(options);
    // Bound before there are threads, so that a failure has nothing to take down.
    auto context = std::make_shared<boost::asio::io_context>(1);
    listener_ = std::make_shared<Listener>(context, core_->options.listen);
    threads_.push_back(std::make_unique<IoThread>("braid-serve-0", context));
    for (int i = 1; i < core_->options.io_threads; ++i)
      threads_.push_back(std::make_unique<IoThread>(fmt::format("braid-serve-{}", i)));
    std::vector<Listener::Context> contexts;
    for (auto& thread : threads_) contexts.push_back(thread->context());
    boost::asio::post(*context,
                      [listener = listener_, core = core_, contexts] { accept(listener, core, contexts); });
  }

  ~TransportServerImpl() override {
    try {
      stop(WaitContext::with_timeout(kStopTime));
    } catch (...) {
      log_error("{}", capture_current_exception()->message);
    }
  }

  std::string address() const override { return listener_->address(); }

  void stop(const WaitContext& wait) override {
    std::lock_guard only_one(stop_mutex_);
    if (!stopped_) close_all();
    stopped_ = true;
    for (auto& thread : threads_)
      if (!thread->wait_ended(wait))
        throw DeadlineExceeded(fmt::format("[transport] server {}: a handler still runs", address()));
  }

 private:
  static constexpr std::chrono::seconds kStopTime{5};
  /// Clients try again; strangers shall not take all descriptors.
  static constexpr int kMostUnproven = 512;

  /// The thread of the listener runs this. It refers to nothing of this object, which may be gone while a
  /// handler is stuck.
  static void accept(const std::shared_ptr<Listener>& listener, const std::shared_ptr<ServerCore>& core,
                     std::vector<Listener::Context> contexts) {
    listener->start(
        [contexts, next = std::size_t{0}]() mutable { return contexts[next++ % contexts.size()]; },
        [core](Listener::Context context, Listener::Socket socket) {
          boost::asio::post(*context, [core, context, socket = std::move(socket)]() mutable {
            open_session(core, context, std::move(socket));
          });
        });
  }

  static void open_session(const std::shared_ptr<ServerCore>& core, Listener::Context context,
                           Listener::Socket socket) {
    configure_socket(socket.native_handle());
    boost::system::error_code gone;
    auto remote = socket.remote_endpoint(gone);
    if (gone) return;
    auto connection = std::make_shared<Connection>(context, std::move(socket), endpoint_name(remote));
    std::uint64_t number;
    {
      std::lock_guard lock(core->mutex);
      if (core->stopping) return;
      if (core->unproven >= kMostUnproven) {
        log_debug("transport: {} is turned away: {} connections have yet to prove themselves",
                  connection->peer(), core->unproven);
        return;
      }
      ++core->unproven;
      number = core->next_connection++;
      core->connections.emplace(number, connection);
    }
    connection->start(std::make_shared<Session>(core, connection, number), *core->streams, true,
                      core->shared);
  }

  void close_all() {
    std::map<std::uint64_t, std::shared_ptr<Connection>> connections;
    {
      std::lock_guard lock(core_->mutex);
      core_->stopping = true;
      connections = core_->connections;
    }
    boost::asio::post(*threads_.front()->context(), [listener = listener_] { listener->close(); });
    for (auto& [number, connection] : connections) {
      boost::asio::post(*connection->context(), [connection = connection] {
        connection->close_with_goodbye({ErrorCode::Unavailable, "the server stopped"});
      });
    }
    for (auto& thread : threads_) thread->finish();
  }

  std::shared_ptr<ServerCore> core_;
  std::shared_ptr<Listener> listener_;
  std::vector<std::unique_ptr<IoThread>> threads_;
  std::mutex stop_mutex_;
  bool stopped_ = false;  // guarded by stop_mutex_
};

}  // namespace

std::unique_ptr<TransportServer> TransportServer::start(TransportServerOptions options,
                                                        RequestHandler handler) {
  return std::make_unique<TransportServerImpl>(std::move(options), std::move(handler));
}

}  // namespace braid::comm
