// A stranger's end of a connection: says what it likes. And what such a stranger may do to a process's
// memory.
#pragma once

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "comm/transport/address.h"
#include "comm/transport/frame.h"

namespace braid::comm {

class RawSocket {
 public:
  explicit RawSocket(const std::string& address) {
    const Address to = parse_address(address);
    if (to.is_unix) {
      sockaddr_un name{};
      name.sun_family = AF_UNIX;
      std::memcpy(name.sun_path, to.host.data(), to.host.size());
      fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
      connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0;
      return;
    }
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    if (getaddrinfo(to.host.c_str(), to.port.c_str(), &hints, &list) != 0) return;
    fd_ = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    connected_ = connect(fd_, list->ai_addr, list->ai_addrlen) == 0;
    freeaddrinfo(list);
  }
  ~RawSocket() {
    if (fd_ >= 0) close(fd_);
  }
  RawSocket(const RawSocket&) = delete;
  RawSocket& operator=(const RawSocket&) = delete;

  bool connected() const { return connected_; }
  void say(std::span<const std::byte> bytes) const {
    [[maybe_unused]] const auto sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  /// The peer ends the connection by itself.
  bool closed_within(std::chrono::milliseconds limit) const {
    pollfd entry{fd_, POLLIN, 0};
    std::byte byte;
    return poll(&entry, 1, static_cast<int>(limit.count())) > 0 && recv(fd_, &byte, 1, 0) <= 0;
  }

 private:
  int fd_ = -1;
  bool connected_ = false;
};

/// Noise, noise behind a known beginning, and frames with a few bits changed.
inline std::vector<std::byte> some_bytes(std::minstd_rand& random) {
  std::vector<std::byte> bytes(1 + random() % 300);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  const auto begin_with = [&](std::span<const std::byte> known) {
    std::copy_n(known.begin(), std::min(known.size(), bytes.size()), bytes.begin());
  };
  switch (random() % 4) {
    case 0:
      break;
    case 1:
      begin_with(std::as_bytes(std::span("BTOK\1\0\0\0", 8)));
      break;
    case 2:
      begin_with(std::as_bytes(std::span("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24)));
      break;
    default: {
      FrameHeader header;
      header.type = static_cast<std::uint16_t>(random() % 6);
      header.id = random();
      header.payload_bytes = random() % 2 == 0 ? random() % 1000 : std::uint64_t{random()} << (random() % 40);
      std::vector<std::byte> meta(random() % 100);
      for (auto& byte : meta) byte = static_cast<std::byte>(random());
      const auto encoded = encode_frame_header(header, meta);
      bytes.insert(bytes.begin(), meta.begin(), meta.end());
      bytes.insert(bytes.begin(), encoded.begin(), encoded.end());
      for (auto changes = random() % 3; changes > 0; --changes)
        bytes[random() % bytes.size()] ^= static_cast<std::byte>(1U << (random() % 8));
    }
  }
  return bytes;
}

inline std::size_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  std::size_t total = 0, resident = 0;
  in >> total >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace braid::comm
