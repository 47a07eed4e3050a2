#include "base/directory_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/random_id.h"

namespace braid {
namespace {

/// "process 123 on host-7 (0123456789abcdef)": numbers of processes are those of their container.
std::string own_name() {
  static const std::uint64_t id = random_id();
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return fmt::format("process {} on {} ({:016x})", ::getpid(), host.data(), id);
}

std::string name_in(int descriptor) {
  std::array<char, 512> text{};
  const ssize_t bytes = ::pread(descriptor, text.data(), text.size(), 0);
  return {text.data(), bytes > 0 ? static_cast<std::size_t>(bytes) : 0};
}

}  // namespace

DirectoryLock::~DirectoryLock() {
  if (descriptor_ < 0) return;
  if (owner_ == ::getpid()) {                               // else a fork's, whose parent goes on
    const bool emptied = ::ftruncate(descriptor_, 0) == 0;  // it names nobody who is gone
    static_cast<void>(emptied);
    ::flock(descriptor_, LOCK_UN);  // closing it would leave the lock to forks that have it open
  }
  ::close(descriptor_);
}

DirectoryLock::DirectoryLock(DirectoryLock&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      owner_(std::exchange(other.owner_, 0)),
      holder_(std::move(other.holder_)) {}

DirectoryLock& DirectoryLock::operator=(DirectoryLock&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(owner_, other.owner_);
  std::swap(holder_, other.holder_);
  return *this;
}

bool DirectoryLock::take(const std::filesystem::path& directory) {
  const std::string file = (directory / ".lock").string();
  int descriptor = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  // Another user's, in a directory of several: it can be locked, but bears no name then.
  if (descriptor < 0 && errno == EACCES) descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0)
    throw Unavailable(
        fmt::format("[files] cannot create '{}': {}", file, std::system_category().message(errno)));
  *this = DirectoryLock();
  descriptor_ = descriptor;
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    const std::string holder = name_in(descriptor);
    if (holder == own_name()) return true;
    holder_ = holder.empty() ? "another process" : holder.substr(0, holder.find(" ("));
    return false;
  }
  owner_ = ::getpid();
  const std::string name = own_name();
  const bool written =
      ::ftruncate(descriptor, 0) == 0 && ::pwrite(descriptor, name.data(), name.size(), 0) >= 0;
  static_cast<void>(written);  // on a full disk the holder has no name
  return true;
}

}  // namespace braid
