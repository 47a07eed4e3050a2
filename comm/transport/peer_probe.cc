#include "comm/transport/peer_probe.h"

#include <fmt/core.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "comm/transport/address.h"
#include "comm/transport/stream.h"

namespace braid::comm {
namespace {

// A server that ends just now closes connections, too; one that refuses us does so each time.
constexpr int kClosedMeansRefused = 3;
constexpr std::chrono::milliseconds kStopPoll{20};  // a stop request is noticed within this time

// What an HTTP/2 client says first: the preface, and settings without any.
constexpr std::string_view kPreface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
constexpr std::byte kTlsAlert{21};

struct Socket {
  explicit Socket(int fd) : fd(fd) {}
  ~Socket() {
    if (fd >= 0) close(fd);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  const int fd;
};

/// False: the time is over, or a stop was asked for.
bool ready(int fd, short events, const WaitContext& wait) {
  while (!wait.expired() && !wait.stopped()) {
    pollfd entry{fd, events, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(wait.remaining());
    if (poll(&entry, 1, static_cast<int>(std::min<std::chrono::milliseconds>(left, kStopPoll).count())) > 0)
      return true;
  }
  return false;
}

/// Repeats an operation of a stream until it is through. False: the time is over.
template <class Operation>
bool until_through(int fd, const WaitContext& wait, IoStatus& status, Operation operation) {
  for (;;) {
    status = operation();
    if (!status.wait || status.bytes > 0 || status.ended) return true;
    if (!ready(fd, *status.wait == Readiness::Read ? POLLIN : POLLOUT, wait)) return false;
  }
}

}  // namespace

PeerProbe::PeerProbe(std::string address, const Security& security)
    : address_(std::move(address)), security_(security) {
  if (make_tls_context(security.tls))
    tls_ = std::make_unique<TlsContext>(security.tls);
  else if (!security.token.empty())
    tls_ = std::make_unique<TlsContext>(security.token);
  if (tls_) tls_->offer_http2();
}

PeerProbe::~PeerProbe() = default;

bool PeerProbe::accepts(const WaitContext& wait) {
  const Outcome outcome = attempt(wait);
  closed_ = outcome == Outcome::Closed ? closed_ + 1 : 0;
  if (closed_ < kClosedMeansRefused) return outcome == Outcome::Accepted;
  if (tls_)
    refuse(
        fmt::format("TLS was refused by the server, whose log says why, most often since it does not trust "
                    "this process's certificate: {}",
                    reason_));
  refuse("it asks for a token or for TLS, and this process has neither (BRAID_TOKEN, strategy.tls)");
}

PeerProbe::Outcome PeerProbe::attempt(const WaitContext& wait) {
  const Address to = parse_address(address_);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int code = getaddrinfo(to.host.c_str(), to.port.c_str(), &hints, &list); code != 0) {
    reason_ = gai_strerror(code);
    return Outcome::Unknown;
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(list, &freeaddrinfo);
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    const Socket socket(::socket(entry->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    int error = 0;
    if (socket.fd < 0 ||
        (connect(socket.fd, entry->ai_addr, entry->ai_addrlen) != 0 && errno != EINPROGRESS)) {
      error = errno;
    } else if (!ready(socket.fd, POLLOUT, wait)) {
      error = ETIMEDOUT;
    } else {
      socklen_t size = sizeof(error);
      getsockopt(socket.fd, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) return converse(socket.fd, wait);
    reason_ = std::system_category().message(error);
  }
  return Outcome::Unknown;
}

PeerProbe::Outcome PeerProbe::converse(int socket, const WaitContext& wait) {
  const auto stream = tls_ ? tls_->make_stream(socket, false) : make_plain_stream(socket);
  const auto ended = [&](const IoStatus& status) {
    reason_ = status.error.empty() ? "it closed the connection" : status.error;
    if (reason_.starts_with("TLS: ")) {
      if (reason_.find("wrong version number") != std::string::npos)
        refuse("it speaks plain text: it was started without the job's token or TLS");
      if (!security_.has_tls())
        refuse(fmt::format("it has another job token than this process ({})", reason_));
      refuse(fmt::format("TLS was refused by {}: {}",
                         reason_.find("alert") == std::string::npos ? "this process" : "the server",
                         reason_));
    }
    return Outcome::Closed;
  };
  reason_ = "no answer";
  IoStatus status;
  if (!until_through(socket, wait, status, [&] { return stream->handshake(); })) return Outcome::Unknown;
  if (status.ended) return ended(status);
  const iovec preface{const_cast<char*>(kPreface.data()), kPreface.size()};
  if (!until_through(socket, wait, status, [&] { return stream->write({&preface, 1}); }))
    return Outcome::Unknown;
  if (status.ended) return ended(status);
  // With TLS 1.3 the server judges our certificate behind our part of the handshake.
  std::array<std::byte, 64> answer;
  const iovec place{answer.data(), answer.size()};
  if (!until_through(socket, wait, status, [&] { return stream->read({&place, 1}); }))
    return Outcome::Unknown;
  if (status.bytes == 0) return ended(status);
  if (!tls_ && answer[0] == kTlsAlert)
    refuse("it asks for a token or for TLS, and this process has neither (BRAID_TOKEN, strategy.tls)");
  return Outcome::Accepted;
}

void PeerProbe::refuse(const std::string& why) const {
  throw InvalidArgument(fmt::format("[security] the server at {}: {}", address_, why));
}

}  // namespace braid::comm
