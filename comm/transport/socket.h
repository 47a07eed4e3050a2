// Sockets used without an event loop: owned descriptors, and connecting, accepting and moving a few bytes
// with a deadline. Thread rule: one object, one thread. `what` in a name is the beginning of an error's text.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/wait_context.h"
#include "comm/transport/stream.h"

namespace braid::comm {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd() { reset(); }
  int get() const { return fd_; }
  /// It is the caller's now.
  int release() { return std::exchange(fd_, -1); }
  void reset();

 private:
  int fd_ = -1;
};

/// A connected, non-blocking socket and the bytes that go over it.
struct StreamSocket {
  Fd fd;
  std::unique_ptr<Stream> stream;
};

/// A listening, non-blocking socket. Throws: Unavailable with the address and the reason, InvalidArgument.
struct ListenSocket {
  Fd fd;
  int port = 0;
};
/// "host:4100-4110" takes the first free port.
ListenSocket listen_on(const std::string& listen);

/// Waits until poll() reports `events` for the descriptor. False: the time is over, or a stop was asked for.
bool ready(int fd, short events, const WaitContext& wait);
/// The same. Throws: DeadlineExceeded, Cancelled.
void wait_ready(int fd, short events, const WaitContext& wait, const std::string& what);

/// A connection that waits at this listener; nothing when there is none, or it is gone again.
std::optional<Fd> accept_now(int listener);
/// The milliseconds that poll() may wait: until the deadline, but short enough to notice a stop request.
int poll_milliseconds(const WaitContext& wait);
/// One attempt, at each of the addresses that the name has. Nothing: the reason in `reason` when it is
/// refused. Throws: DeadlineExceeded, Cancelled, InvalidArgument for an address that is not host:port.
std::optional<Fd> connect_once(const std::string& address, const WaitContext& wait, const std::string& what,
                               std::string& reason);

/// A Unix socket without a file, for ranks of one host: several times the speed of TCP there. Nothing when it
/// cannot be had.
std::optional<Fd> listen_local(const std::string& name);
std::optional<Fd> connect_local(const std::string& name);
/// Equal on two processes that can reach each other's local sockets: the machine, since its start, and the
/// network namespace.
std::string local_scope();

/// Throws: DeadlineExceeded, Cancelled, Unavailable (the peer ended).
void handshake(StreamSocket& socket, const WaitContext& wait, const std::string& what);
void write_exactly(StreamSocket& socket, std::span<const std::byte> bytes, const WaitContext& wait,
                   const std::string& what);
void read_exactly(StreamSocket& socket, std::span<std::byte> bytes, const WaitContext& wait,
                  const std::string& what);

}  // namespace braid::comm
