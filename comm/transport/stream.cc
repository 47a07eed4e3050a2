#include "comm/transport/stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "comm/transport/shared_stream.h"
#include "comm/transport/traffic.h"

namespace braid::comm {
namespace {

std::atomic<std::uint64_t> received_bytes{0}, sent_bytes{0};

/// Another stream, whose bytes are counted.
class CountedStream final : public Stream {
 public:
  explicit CountedStream(std::unique_ptr<Stream> inner) : inner_(std::move(inner)) {}

  IoStatus handshake() override { return inner_->handshake(); }
  IoStatus read(std::span<const iovec> pieces) override {
    IoStatus result = inner_->read(pieces);
    received_bytes.fetch_add(result.bytes, std::memory_order_relaxed);
    return result;
  }
  IoStatus write(std::span<const iovec> pieces) override {
    IoStatus result = inner_->write(pieces);
    sent_bytes.fetch_add(result.bytes, std::memory_order_relaxed);
    return result;
  }
  IoStatus flush() override { return inner_->flush(); }
  bool rings() const override { return inner_->rings(); }
  bool take_bells() override { return inner_->take_bells(); }

 private:
  const std::unique_ptr<Stream> inner_;
};

class PlainStream final : public Stream {
 public:
  explicit PlainStream(int socket) : socket_(socket) {}

  IoStatus handshake() override { return {}; }

  IoStatus read(std::span<const iovec> pieces) override {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(pieces.data());
    message.msg_iovlen = pieces.size();
    ssize_t got;
    do got = recvmsg(socket_, &message, 0);
    while (got < 0 && errno == EINTR);
    return status(got, pieces, Readiness::Read);
  }

  IoStatus write(std::span<const iovec> pieces) override {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(pieces.data());
    message.msg_iovlen = pieces.size();
    ssize_t sent;
    do sent = sendmsg(socket_, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return status(sent, pieces, Readiness::Write);
  }

  IoStatus flush() override { return {}; }

 private:
  static IoStatus status(ssize_t moved, std::span<const iovec> pieces, Readiness direction) {
    IoStatus result;
    if (moved < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        result.wait = direction;
      } else {
        result.ended = true;
        result.error = std::system_category().message(errno);
      }
      return result;
    }
    result.bytes = static_cast<std::size_t>(moved);
    if (moved == 0 && direction == Readiness::Read) {
      result.ended = true;
      return result;
    }
    std::size_t asked = 0;
    for (auto& piece : pieces) asked += piece.iov_len;
    // A short count means that the socket's buffer is empty (or full): asking again would only be refused.
    if (result.bytes < asked) result.wait = direction;
    return result;
  }

  int socket_;
};

}  // namespace

std::unique_ptr<Stream> make_plain_stream(int socket) { return std::make_unique<PlainStream>(socket); }

StreamFactory::StreamFactory(const Security& security, std::string purpose, std::vector<std::byte> answer)
    : tls_(make_tls_context(security.tls)),
      token_(security.token),
      purpose_(std::move(purpose)),
      answer_(std::move(answer)) {}

void StreamFactory::require_for(bool shared) const {
  if (tls_ && shared)
    throw InvalidArgument("[transport] shared memory is not encrypted: there is no TLS over 'shm:'");
}

std::unique_ptr<Stream> StreamFactory::make(int socket, bool server, bool shared) const {
  auto stream = tls_ ? tls_->make_stream(socket, server) : make_plain_stream(socket);
  if (!tls_ && !token_.empty())
    stream = make_token_stream(std::move(stream), server, token_, purpose_, answer_);
  if (!tls_ && shared) stream = make_shared_stream(std::move(stream), socket, server);
  return std::make_unique<CountedStream>(std::move(stream));
}

Traffic traffic() {
  return {received_bytes.load(std::memory_order_relaxed), sent_bytes.load(std::memory_order_relaxed)};
}

}  // namespace braid::comm
