#include "base/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

std::string system_text(int error) { return std::generic_category().message(error); }

[[noreturn]] void throw_reading(std::string_view what, const fs::path& path, int error) {
  const std::string message =
      fmt::format("[files] cannot {} '{}': {}", what, path.string(), system_text(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EACCES:
    case EPERM:
    case ENAMETOOLONG:
    case ELOOP:
      throw InvalidArgument(message);
    default:
      throw Unavailable(message);
  }
}

[[noreturn]] void throw_writing(std::string_view what, const fs::path& path, int error) {
  throw Unavailable(fmt::format("[files] cannot {} '{}': {}", what, path.string(), system_text(error)));
}

/// Repeats a system call that a signal interrupted.
template <class Call>
auto retried(Call call) {
  decltype(call()) result;
  do result = call();
  while (result < 0 && errno == EINTR);
  return result;
}

fs::path parent_of(const fs::path& path) {
  const fs::path parent = path.parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

}  // namespace

File File::open(const fs::path& path) {
  // Without O_NONBLOCK, opening a pipe waits for somebody who writes.
  const int descriptor = retried([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  if (descriptor < 0) throw_reading("open", path, errno);
  File file(path, descriptor);
  struct stat status;
  if (::fstat(descriptor, &status) != 0) throw_reading("open", path, errno);
  if (S_ISDIR(status.st_mode)) throw_reading("read", path, EISDIR);
  if (S_ISFIFO(status.st_mode))
    throw InvalidArgument(fmt::format("[files] cannot read '{}': it is a pipe, not a file", path.string()));
  if (::fcntl(descriptor, F_SETFL, 0) != 0) throw_reading("open", path, errno);  // reads do wait
  return file;
}

File File::create(const fs::path& path) {
  const int descriptor =
      retried([&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644); });
  if (descriptor < 0) throw_writing("create", path, errno);
  return File(path, descriptor);
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      written_(std::exchange(other.written_, 0)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(written_, other.written_);
  return *this;
}

void File::write(std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t n = retried([&] { return ::write(descriptor_, data.data(), data.size()); });
    if (n < 0)
      throw Unavailable(fmt::format("[files] cannot write to '{}' at byte {}: {}", path_.string(), written_,
                                    system_text(errno)));
    written_ += static_cast<std::uint64_t>(n);
    data = data.subspan(static_cast<std::size_t>(n));
  }
}

void File::read_at(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n =
        retried([&] { return ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset)); });
    if (n < 0) throw_reading(fmt::format("read byte {} of", offset), path_, errno);
    if (n == 0)
      throw DataLoss(
          fmt::format("[files] '{}' ends at byte {}, {} bytes too soon", path_.string(), offset, out.size()));
    offset += static_cast<std::uint64_t>(n);
    out = out.subspan(static_cast<std::size_t>(n));
  }
}

std::uint64_t File::size() const {
  struct stat status;
  if (::fstat(descriptor_, &status) != 0) throw_reading("ask the size of", path_, errno);
  return static_cast<std::uint64_t>(status.st_size);
}

void File::sync() {
  if (retried([&] { return ::fsync(descriptor_); }) != 0) throw_writing("sync", path_, errno);
}

void File::close() {
  // Linux frees the descriptor even when close() fails, so there is one attempt.
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) throw_writing("close", path_, errno);
}

void File::advise_sequential() const { ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL); }

std::string read_file(const fs::path& path) {
  const File file = File::open(path);
  std::string content(file.size(), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(content)));
  return content;
}

void write_file_atomically(const fs::path& path, std::string_view content) {
  static std::atomic<unsigned> counter{0};  // threads may write the same path at once
  const fs::path temporary =
      parent_of(path) / fmt::format(".tmp-{}-{}-{}", path.filename().string(), ::getpid(), ++counter);
  try {
    File file = File::create(temporary);
    file.write(std::as_bytes(std::span(content)));
    file.sync();
    file.close();
    rename_path(temporary, path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_directory(parent_of(path));
}

void make_directories(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw_writing("create the directory", path, error.value());
}

void rename_path(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    throw_writing(fmt::format("rename '{}' to", from.string()), to, errno);
}

void remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw_writing("remove", path, error.value());
}

void sync_directory(const fs::path& path) {
  const int descriptor = retried([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (descriptor < 0) throw_writing("open the directory", path, errno);
  const int result = retried([&] { return ::fsync(descriptor); });
  const int error = errno;
  ::close(descriptor);
  // EINVAL: a file system whose directories cannot be synced (some network and FUSE ones); nothing more can
  // be done.
  if (result != 0 && error != EINVAL) throw_writing("sync the directory", path, error);
}

std::vector<fs::path> list_directory(const fs::path& path) {
  std::error_code error;
  std::vector<fs::path> names;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename());
  if (error) throw_reading("list", path, error.value());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<fs::path> glob(const std::string& pattern) {
  glob_t found{};
  const int result = ::glob(pattern.c_str(), GLOB_ERR, nullptr, &found);
  const int error = errno;
  std::vector<fs::path> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (result != 0 && result != GLOB_NOMATCH)
    throw_reading("search for", pattern, result == GLOB_NOSPACE ? ENOMEM : error);
  return paths;
}

}  // namespace braid
