// Bytes to and from one connected, non-blocking socket, in plain text or through TLS, with one synchronous
// interface: a call does what can be done now and says what to wait for. So the caller's memory is touched
// only while a call runs, and a deadline may take it away at any other time. One thread.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/transport/transport.h"

namespace braid::comm {

enum class Readiness { Read, Write };

struct IoStatus {
  std::size_t bytes = 0;
  /// Set: nothing more can be done until the socket is ready for this.
  std::optional<Readiness> wait;
  bool ended = false;  // the peer closed its side, or the connection failed
  std::string error;   // the reason, when `ended` and it was not an orderly end
};

class Stream {
 public:
  virtual ~Stream() = default;
  /// Repeat until neither `wait` nor `ended` is set.
  virtual IoStatus handshake() = 0;
  virtual IoStatus read(std::span<const iovec> pieces) = 0;
  /// Bytes that were taken may still be inside: see flush(). Pieces are not referred to after the call.
  virtual IoStatus write(std::span<const iovec> pieces) = 0;
  /// Moves on what write() took. Done when neither `wait` nor `ended` is set.
  virtual IoStatus flush() = 0;

  /// True: what read() and write() wait for comes with a bell, a byte on the socket that concerns both. Who
  /// waited takes the bells, and then reads and writes. Result of take_bells(): the peer is gone, and what it
  /// has left is to be read.
  virtual bool rings() const { return false; }
  virtual bool take_bells() { return false; }
};

/// `socket` stays the caller's and outlives the stream.
std::unique_ptr<Stream> make_plain_stream(int socket);

/// Keys and certificates of one side, loaded once. Mutual: each side shows a certificate, and each accepts
/// any certificate that the CA signed; names in certificates are not compared with addresses, since tasks
/// move between hosts.
class TlsContext {
 public:
  /// Throws: InvalidArgument naming the file that cannot be used and why.
  explicit TlsContext(const TlsOptions& options);
  /// With the certificate that follows from the token.
  explicit TlsContext(const JobToken& token);
  ~TlsContext();
  /// As clients of gRPC do. REQUIRES: before streams are made.
  void offer_http2();
  /// The stream may outlive the context; `socket` stays the caller's.
  std::unique_ptr<Stream> make_stream(int socket, bool server) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Null when no file is named. Throws: InvalidArgument when only some are.
std::shared_ptr<const TlsContext> make_tls_context(const TlsOptions& options);

/// The handshake of `inner` proves the job's token to the peer and has it proved (token_handshake.h); then
/// the bytes are those of `inner`. `answer`: see TokenHandshake. REQUIRES: the token is not empty.
std::unique_ptr<Stream> make_token_stream(std::unique_ptr<Stream> inner, bool server, const JobToken& token,
                                          std::string_view purpose, std::vector<std::byte> answer = {});

/// Streams of one kind of connection, secured as the job says: by TLS, else by the token, else not at all.
class StreamFactory {
 public:
  /// `purpose` and `answer`: see TokenHandshake. Throws: InvalidArgument for TLS files that cannot be used.
  StreamFactory(const Security& security, std::string purpose, std::vector<std::byte> answer = {});
  /// `socket` stays the caller's and outlives the stream. `shared`: the bytes go through shared memory, and
  /// it is a Unix socket (shared_stream.h). REQUIRES: require_for(shared).
  std::unique_ptr<Stream> make(int socket, bool server, bool shared = false) const;
  bool encrypts() const { return tls_ != nullptr; }
  /// Throws: InvalidArgument where bytes in shared memory would have to be encrypted.
  void require_for(bool shared) const;

 private:
  std::shared_ptr<const TlsContext> tls_;
  JobToken token_;
  std::string purpose_;
  std::vector<std::byte> answer_;
};

}  // namespace braid::comm
