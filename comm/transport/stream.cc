#include "comm/transport/stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/error.h"
#include "comm/transport/shared_stream.h"

namespace braid::comm {
namespace {

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
  if (tls_) return tls_->make_stream(socket, server);
  auto stream = make_plain_stream(socket);
  if (!token_.empty()) stream = make_token_stream(std::move(stream), server, token_, purpose_, answer_);
  return shared ? make_shared_stream(std::move(stream), socket, server) : std::move(stream);
}

}  // namespace braid::comm
