#include "comm/transport/shared_stream.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>

#include "comm/transport/socket.h"

namespace braid::comm {
namespace {

constexpr std::uint32_t kSharedMagic = 0x4d485342;  // "BSHM"
constexpr std::uint32_t kSharedVersion = 1;

/// What the client sends with the memory's descriptor.
struct SharedHello {
  std::uint32_t magic = kSharedMagic, version = kSharedVersion;
  std::uint64_t ring_bytes = kSharedRingBytes;
};

/// How far a ring's two sides are, in bytes since the beginning; each is written by one side alone. A side
/// that waits says so, and is rung by the one that changes what it waits for.
struct RingState {
  alignas(64) std::atomic<std::uint64_t> written;
  alignas(64) std::atomic<std::uint64_t> read;
  alignas(64) std::atomic<std::uint32_t> reader_waits;
  std::atomic<std::uint32_t> writer_waits;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<std::uint32_t>::is_always_lock_free);

constexpr std::size_t kStateBytes = 4096;  // before the rings
constexpr std::size_t kMemoryBytes = kStateBytes + 2 * kSharedRingBytes;
static_assert(2 * sizeof(RingState) <= kStateBytes && (kSharedRingBytes & (kSharedRingBytes - 1)) == 0);

std::string last_error() { return std::system_category().message(errno); }

/// Both rings, mapped.
class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(const SharedMemory&) = delete;
  ~SharedMemory() {
    if (memory_ != nullptr) munmap(memory_, kMemoryBytes);
  }
  /// False: errno says why.
  bool map(int fd) {
    void* const at = mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return false;
    memory_ = static_cast<std::byte*>(at);
    return true;
  }
  /// Ring 0 is the client's to write, ring 1 the server's.
  RingState& state(int ring) const { return reinterpret_cast<RingState*>(memory_)[ring]; }
  std::byte* bytes(int ring) const {
    return memory_ + kStateBytes + static_cast<std::size_t>(ring) * kSharedRingBytes;
  }

 private:
  std::byte* memory_ = nullptr;
};

class SharedStream final : public Stream {
 public:
  SharedStream(std::unique_ptr<Stream> inner, int socket, bool server)
      : inner_(std::move(inner)), socket_(socket), server_(server) {}

  IoStatus handshake() override {
    if (!proven_) {
      const IoStatus status = inner_->handshake();
      if (status.ended || status.wait) return status;
      proven_ = true;
    }
    return server_ ? take_memory() : give_memory();
  }

  IoStatus read(std::span<const iovec> pieces) override {
    RingState& ring = memory_.state(server_ ? 0 : 1);
    const std::byte* const bytes = memory_.bytes(server_ ? 0 : 1);
    IoStatus status;
    for (std::size_t piece = 0, offset = 0; piece < pieces.size();) {
      const std::uint64_t ready = ring.written.load(std::memory_order_acquire) - read_;
      if (ready > kSharedRingBytes) return damaged();
      if (ready == 0) {
        if (status.bytes > 0) break;  // the caller comes back
        if (gone_) {
          status.ended = true;
          status.error = error_;
          return status;
        }
        if (asks(ring.reader_waits)) {
          status.wait = Readiness::Read;
          return status;
        }
        continue;
      }
      const std::size_t at = read_ % kSharedRingBytes;
      const std::size_t count =
          std::min({static_cast<std::size_t>(ready), kSharedRingBytes - at, pieces[piece].iov_len - offset});
      std::memcpy(static_cast<std::byte*>(pieces[piece].iov_base) + offset, bytes + at, count);
      read_ += count;
      status.bytes += count;
      offset += count;
      if (offset == pieces[piece].iov_len) {
        ++piece;
        offset = 0;
      }
      // A writer that waits can go on while this side copies the rest.
      if (status.bytes % kTell < count || piece == pieces.size()) tell(ring.read, read_, ring.writer_waits);
    }
    tell(ring.read, read_, ring.writer_waits);
    return status;
  }

  IoStatus write(std::span<const iovec> pieces) override {
    RingState& ring = memory_.state(server_ ? 1 : 0);
    std::byte* const bytes = memory_.bytes(server_ ? 1 : 0);
    IoStatus status;
    if (gone_) {
      status.ended = true;
      status.error = error_;
      return status;
    }
    for (std::size_t piece = 0, offset = 0; piece < pieces.size();) {
      const std::uint64_t used = written_ - ring.read.load(std::memory_order_acquire);
      if (used > kSharedRingBytes) return damaged();
      const std::size_t room = kSharedRingBytes - static_cast<std::size_t>(used);
      if (room == 0) {
        tell(ring.written, written_, ring.reader_waits);
        if (asks(ring.writer_waits)) {
          status.wait = Readiness::Read;
          return status;
        }
        continue;
      }
      const std::size_t at = written_ % kSharedRingBytes;
      const std::size_t count =
          std::min({room, kSharedRingBytes - at, pieces[piece].iov_len - offset, kTell});
      std::memcpy(bytes + at, static_cast<const std::byte*>(pieces[piece].iov_base) + offset, count);
      written_ += count;
      status.bytes += count;
      offset += count;
      if (offset == pieces[piece].iov_len) {
        ++piece;
        offset = 0;
      }
      if (count == kTell) tell(ring.written, written_, ring.reader_waits);
    }
    tell(ring.written, written_, ring.reader_waits);
    return status;
  }

  IoStatus flush() override { return {}; }
  bool rings() const override { return true; }

  bool take_bells() override {
    std::array<std::byte, 256> bells;
    for (;;) {
      const ssize_t got = recv(socket_, bells.data(), bells.size(), MSG_DONTWAIT);
      if (got > 0) continue;
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return gone_;
      if (got < 0) error_ = last_error();
      return gone_ = true;
    }
  }

 private:
  static constexpr std::size_t kTell = 64 << 10;  // bytes after which the other side may begin

  static IoStatus failed(std::string why) {
    IoStatus status;
    status.ended = true;
    status.error = std::move(why);
    return status;
  }
  IoStatus damaged() {
    gone_ = true;
    error_ = "the peer has damaged the shared memory";
    return failed(error_);
  }

  /// Asks to be rung. True: that was asked for before the ring was looked at, so the caller may wait.
  bool asks(std::atomic<std::uint32_t>& waits) {
    if (waits.load(std::memory_order_seq_cst) != 0) return true;
    waits.store(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return false;
  }

  /// Publishes how far this side is, and rings the other if it waits.
  void tell(std::atomic<std::uint64_t>& progress, std::uint64_t to, std::atomic<std::uint32_t>& waits) {
    if (progress.load(std::memory_order_relaxed) == to) return;
    progress.store(to, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (waits.load(std::memory_order_seq_cst) == 0 || waits.exchange(0, std::memory_order_seq_cst) == 0)
      return;
    const std::byte bell{1};
    // A socket that is full of bells wakes the peer as well; one that is closed is noticed by reading.
    while (send(socket_, &bell, 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EINTR) {
    }
  }

  IoStatus give_memory() {
    Fd fd(memfd_create("braid-transport", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd.get() < 0 || ftruncate(fd.get(), static_cast<off_t>(kMemoryBytes)) != 0 ||
        fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 ||
        !memory_.map(fd.get()))
      return failed("no shared memory: " + last_error());
    SharedHello hello;
    iovec piece{&hello, sizeof(hello)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    const int number = fd.get();
    std::memcpy(CMSG_DATA(rights), &number, sizeof(number));
    ssize_t sent;
    do sent = sendmsg(socket_, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    // The first bytes after the proof: the socket's buffer is empty.
    if (sent < 0) return failed(last_error());
    if (sent != sizeof(hello)) return failed("its shared memory could not be handed over");
    return {};
  }

  IoStatus take_memory() {
    while (hello_filled_ < sizeof(hello_)) {
      iovec piece{reinterpret_cast<std::byte*>(&hello_) + hello_filled_, sizeof(hello_) - hello_filled_};
      alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
      msghdr message{};
      message.msg_iov = &piece;
      message.msg_iovlen = 1;
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      ssize_t got;
      do got = recvmsg(socket_, &message, MSG_CMSG_CLOEXEC);
      while (got < 0 && errno == EINTR);
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        IoStatus status;
        status.wait = Readiness::Read;
        return status;
      }
      if (got < 0) return failed(last_error());
      if (got == 0) return failed("");
      for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        int number = -1;
        std::memcpy(&number, CMSG_DATA(c), sizeof(number));
        given_ = Fd(number);
      }
      hello_filled_ += static_cast<std::size_t>(got);
      if (hello_filled_ >= sizeof(hello_.magic) && hello_.magic != kSharedMagic)
        return failed("it speaks another protocol than that of shared memory");
    }
    if (hello_.version != kSharedVersion || hello_.ring_bytes != kSharedRingBytes)
      return failed(fmt::format("its shared memory is of version {} with rings of {} bytes, not {} and {}",
                                hello_.version, hello_.ring_bytes, kSharedVersion, kSharedRingBytes));
    // Memory that the peer could cut short would end this process with a signal.
    struct stat info {};
    const int seals = given_.get() < 0 ? -1 : fcntl(given_.get(), F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(given_.get(), &info) != 0 ||
        info.st_size != static_cast<off_t>(kMemoryBytes))
      return failed("it gave no sealed memory of the right size");
    if (!memory_.map(given_.get())) return failed("no shared memory: " + last_error());
    given_.reset();
    return {};
  }

  const std::unique_ptr<Stream> inner_;
  const int socket_;
  const bool server_;
  bool proven_ = false;
  SharedHello hello_{0, 0, 0};  // the client's
  std::size_t hello_filled_ = 0;
  Fd given_;
  SharedMemory memory_;
  std::uint64_t read_ = 0, written_ = 0;  // this side's, not the shared ones, which the peer could change
  bool gone_ = false;
  std::string error_;
};

}  // namespace

std::unique_ptr<Stream> make_shared_stream(std::unique_ptr<Stream> inner, int socket, bool server) {
  return std::make_unique<SharedStream>(std::move(inner), socket, server);
}

}  // namespace braid::comm
