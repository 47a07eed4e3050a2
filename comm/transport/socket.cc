#include "comm/transport/socket.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/look_up.h"
#include "comm/transport/address.h"

namespace braid::comm {
namespace {

constexpr std::chrono::milliseconds kStopPoll{20};  // a stop request is noticed within this time

// Unix sockets do not grow their buffers by themselves, as TCP's do.
constexpr int kLocalBufferBytes = 1 << 20;

std::string errno_text(int code) { return std::system_category().message(code); }

bool is_local(int fd) {
  int domain = 0;
  socklen_t size = sizeof(domain);
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
}

/// Refused options cost speed, not correctness, so failures are not errors.
void set_options(int fd, bool local) {
  if (local) {
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kLocalBufferBytes, sizeof(kLocalBufferBytes));
    return;
  }
  int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
}

/// The name of a Unix socket without a file begins with a zero byte.
std::pair<sockaddr_un, socklen_t> abstract_address(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  auto bytes = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data(), bytes);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes)};
}

Address tcp_address(const std::string& text) {
  auto address = parse_address(text);
  if (address.is_unix)
    throw InvalidArgument(fmt::format("[transport] address '{}': expected host:port", text));
  return address;
}

void require(const IoStatus& status, const std::string& what) {
  if (!status.ended) return;
  throw Unavailable(fmt::format("{}: {}", what, status.error.empty() ? "connection closed" : status.error));
}

void wait_as_told(const StreamSocket& socket, const IoStatus& status, const WaitContext& wait,
                  const std::string& what) {
  if (status.wait)
    wait_ready(socket.fd.get(), *status.wait == Readiness::Read ? POLLIN : POLLOUT, wait, what);
}

}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void Fd::reset() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

namespace {

ListenSocket listen_at(const std::string& listen) {
  auto address = tcp_address(listen);
  auto fail = [&](const std::string& reason) -> Unavailable {
    return Unavailable(fmt::format("[transport] cannot listen on {}: {}", listen, reason));
  };
  std::string reason;
  const AddressList list = own_addresses(address.host, address.port, reason);
  if (!list) throw fail(reason);
  Fd fd(socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  int one = 1;
  if (fd.get() >= 0) {
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    take_both_families(fd.get());
  }
  if (fd.get() < 0 || bind(fd.get(), list->ai_addr, list->ai_addrlen) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0)
    throw fail(errno_text(errno));
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) throw fail(errno_text(errno));
  auto port = bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                          : reinterpret_cast<sockaddr_in&>(bound).sin_port;
  return {std::move(fd), ntohs(port)};
}

}  // namespace

ListenSocket listen_on(const std::string& listen) {
  const std::vector<std::string> candidates = listen_candidates(listen);
  for (std::size_t i = 0; i + 1 < candidates.size(); ++i) {
    try {
      return listen_at(candidates[i]);
    } catch (const Unavailable&) {  // of the last one it is told
    }
  }
  return listen_at(candidates.back());
}

int poll_milliseconds(const WaitContext& wait) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(wait.remaining());
  return static_cast<int>(std::min<std::chrono::milliseconds>(left, kStopPoll).count());
}

bool ready(int fd, short events, const WaitContext& wait) {
  for (;;) {
    pollfd entry{fd, events, 0};
    if (poll(&entry, 1, poll_milliseconds(wait)) > 0) return true;
    if (wait.expired() || wait.stopped()) return false;
  }
}

void wait_ready(int fd, short events, const WaitContext& wait, const std::string& what) {
  if (!ready(fd, events, wait)) wait.check(what);
}

std::optional<Fd> accept_now(int listener) {
  Fd fd(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd.get() < 0) return std::nullopt;
  set_options(fd.get(), is_local(listener));
  return fd;
}

std::optional<Fd> listen_local(const std::string& name) {
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  auto [address, size] = abstract_address(name);
  if (fd.get() < 0 || bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0)
    return std::nullopt;
  return fd;
}

std::optional<Fd> connect_local(const std::string& name) {
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  auto [address, size] = abstract_address(name);
  if (fd.get() < 0 || connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0)
    return std::nullopt;
  set_options(fd.get(), true);
  return fd;
}

std::string local_scope() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code error;
  auto network = std::filesystem::read_symlink("/proc/self/ns/net", error).string();
  return boot.empty() || error ? "" : boot + " " + network;
}

std::optional<Fd> connect_once(const std::string& address, const WaitContext& wait, const std::string& what,
                               std::string& reason) {
  const Address to = tcp_address(address);
  const AddressList list = look_up(to.host, to.port, wait, reason);
  for (const addrinfo* entry = list.get(); entry; entry = entry->ai_next) {
    Fd fd(socket(entry->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    int error = 0;
    if (fd.get() < 0 || (connect(fd.get(), entry->ai_addr, entry->ai_addrlen) != 0 && errno != EINPROGRESS)) {
      error = errno;
    } else {
      wait_ready(fd.get(), POLLOUT, wait, what);
      socklen_t size = sizeof(error);
      getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) {
      set_options(fd.get(), false);
      return fd;
    }
    reason = errno_text(error);
  }
  return std::nullopt;
}

void handshake(StreamSocket& socket, const WaitContext& wait, const std::string& what) {
  for (;;) {
    auto status = socket.stream->handshake();
    require(status, what);
    if (!status.wait) return;
    wait_as_told(socket, status, wait, what);
  }
}

void write_exactly(StreamSocket& socket, std::span<const std::byte> bytes, const WaitContext& wait,
                   const std::string& what) {
  for (;;) {
    iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
    auto status = bytes.empty() ? socket.stream->flush() : socket.stream->write({&piece, 1});
    bytes = bytes.subspan(status.bytes);
    require(status, what);
    if (bytes.empty() && !status.wait) return;
    wait_as_told(socket, status, wait, what);
  }
}

void read_exactly(StreamSocket& socket, std::span<std::byte> bytes, const WaitContext& wait,
                  const std::string& what) {
  while (!bytes.empty()) {
    iovec piece{bytes.data(), bytes.size()};
    auto status = socket.stream->read({&piece, 1});
    bytes = bytes.subspan(status.bytes);
    if (bytes.empty()) return;
    require(status, what);
    wait_as_told(socket, status, wait, what);
  }
}

}  // namespace braid::comm
