#include "ps/server/socket_files.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <system_error>

#include "base/log.h"
#include "base/random_id.h"

namespace braid::ps {
namespace {

constexpr const char* kPrefix = "braid-ps-";
constexpr const char* kSuffix = ".sock";

bool nobody_listens(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return false;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return false;
  const bool refused = ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 &&
                       errno == ECONNREFUSED;
  ::close(socket);
  return refused;
}

bool is_dead(const std::filesystem::path& path, std::chrono::seconds age) {
  const std::string name = path.filename().string();
  struct stat status {};
  return name.starts_with(kPrefix) && name.ends_with(kSuffix) && ::lstat(path.c_str(), &status) == 0 &&
         S_ISSOCK(status.st_mode) && status.st_uid == ::geteuid() &&
         std::time(nullptr) - status.st_mtime > age.count() && nobody_listens(path.string());
}

}  // namespace

std::string new_socket_file(int index) {
  return fmt::format("/tmp/{}{:016x}-{}{}", kPrefix, random_id(), index, kSuffix);
}

void remove_dead_sockets(const std::filesystem::path& directory, std::chrono::seconds age) {
  std::error_code error;
  int removed = 0;
  std::filesystem::directory_iterator entry(directory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
    if (is_dead(entry->path(), age) && ::unlink(entry->path().c_str()) == 0) ++removed;
  if (removed > 0)
    log_info("[ps] removed {} stale sockets of killed servers from {}", removed, directory.string());
}

}  // namespace braid::ps
