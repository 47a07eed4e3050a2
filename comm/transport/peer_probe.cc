#include "comm/transport/peer_probe.h"

#include <fmt/core.h>
#include <poll.h>

#include <array>
#include <span>
#include <string_view>

#include "base/error.h"
#include "comm/transport/socket.h"
#include "comm/transport/stream.h"

namespace braid::comm {
namespace {

// A server that ends just now closes connections, too; one that refuses us does so each time.
constexpr int kClosedMeansRefused = 3;

// What an HTTP/2 client says first: the preface, and settings without any.
constexpr std::string_view kPreface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
constexpr std::byte kTlsAlert{21};

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
        fmt::format("TLS was refused by the server; its log says why, most often because it does not trust "
                    "this process's certificate: {}",
                    reason_));
  refuse("it asks for a token or for TLS, and this process has neither (BRAID_TOKEN, strategy.tls)");
}

PeerProbe::Outcome PeerProbe::attempt(const WaitContext& wait) {
  try {
    const auto socket = connect_once(address_, wait, "no connection", reason_);
    return socket ? converse(socket->get(), wait) : Outcome::Unknown;
  } catch (const DeadlineExceeded& error) {
    reason_ = error.message();
  } catch (const Cancelled& error) {
    reason_ = error.message();
  }
  return Outcome::Unknown;
}

PeerProbe::Outcome PeerProbe::converse(int socket, const WaitContext& wait) {
  const auto stream = tls_ ? tls_->make_stream(socket, false) : make_plain_stream(socket);
  const auto ended = [&](const IoStatus& status) {
    reason_ = status.error.empty() ? "it closed the connection" : status.error;
    if (reason_.starts_with("TLS: ")) {
      if (reason_.find("wrong version number") != std::string::npos)
        refuse("it does not encrypt: it was started without the job's token or TLS");
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
