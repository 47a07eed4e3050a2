#include "engine/input/files/data_file.h"

#include <sys/stat.h>

#include <cctype>

#include "base/error.h"
#include "base/files.h"
#include "engine/input/files/remote_files.h"

namespace braid {
namespace {

class LocalFile : public DataFile {
 public:
  explicit LocalFile(const std::filesystem::path& path) : file_(File::open(path)), size_(file_.size()) {}
  std::uint64_t size() const override { return size_; }
  void read_at(std::uint64_t offset, std::span<std::byte> out) const override { file_.read_at(offset, out); }
  const std::filesystem::path& path() const override { return file_.path(); }
  void advise_sequential() const override { file_.advise_sequential(); }

 private:
  const File file_;
  const std::uint64_t size_;
};

}  // namespace

std::string_view scheme_of(std::string_view name) {
  const std::size_t end = name.find("://");
  if (end == std::string_view::npos || end < 2) return {};
  for (const char c : name.substr(0, end))
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '+' && c != '-') return {};
  return name.substr(0, end);
}

std::shared_ptr<DataFile> open_data_file(const std::filesystem::path& file) {
  if (!scheme_of(file.native()).empty()) return open_remote_file(file.native());
  return std::make_shared<LocalFile>(file);
}

FileStamp stamp_of(const std::filesystem::path& file) {
  if (!scheme_of(file.native()).empty()) return remote_stamp(file.native());
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0) File::open(file);  // which says what is wrong
  return {static_cast<std::uint64_t>(info.st_size),
          info.st_mtim.tv_sec * 1'000'000'000LL + info.st_mtim.tv_nsec};
}

}  // namespace braid
