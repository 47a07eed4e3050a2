#include <unistd.h>
#include <zlib.h>

#include <cstring>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/formats/zip.h"

namespace braid {
namespace {

constexpr std::uint16_t kZipVersion = 45;  // ZIP64
constexpr std::uint16_t kUtf8Names = 0x0800;
constexpr std::uint16_t kDate = (1980 - 1980) << 9 | 1 << 5 | 1;  // no clock: equal content, equal archive

template <class T>
void put_number(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::uint32_t low(std::uint64_t value) {
  return value >= UINT32_MAX ? UINT32_MAX : static_cast<std::uint32_t>(value);
}

/// Shape only: lead bytes followed by as many continuation bytes as they say.
bool is_utf8(const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto lead = static_cast<unsigned char>(text[at]);
    const std::size_t more = lead < 0x80       ? 0
                             : lead >> 5 == 6  ? 1
                             : lead >> 4 == 14 ? 2
                             : lead >> 3 == 30 ? 3
                                               : SIZE_MAX;
    if (more >= text.size() - at) return false;
    for (std::size_t i = 1; i <= more; ++i)
      if ((static_cast<unsigned char>(text[at + i]) & 0xC0) != 0x80) return false;
    at += more + 1;
  }
  return true;
}

/// What local header and directory have in common, from the version on.
void put_common(std::string& out, const ZipEntry& entry, std::size_t extra) {
  put_number<std::uint16_t>(out, kZipVersion);
  put_number<std::uint16_t>(out, kUtf8Names);
  put_number<std::uint16_t>(out, 0);  // stored
  put_number<std::uint16_t>(out, 0);  // time
  put_number<std::uint16_t>(out, kDate);
  put_number<std::uint32_t>(out, entry.crc);
  put_number<std::uint32_t>(out, low(entry.bytes));
  put_number<std::uint32_t>(out, low(entry.bytes));
  put_number<std::uint16_t>(out, static_cast<std::uint16_t>(entry.name.size()));
  put_number<std::uint16_t>(out, static_cast<std::uint16_t>(extra));
}

std::string zip64_extra(std::initializer_list<std::uint64_t> values) {
  std::string body;
  for (const std::uint64_t value : values)
    if (value >= UINT32_MAX) put_number(body, value);
  if (body.empty()) return {};
  std::string extra;
  put_number<std::uint16_t>(extra, 1);
  put_number<std::uint16_t>(extra, static_cast<std::uint16_t>(body.size()));
  return extra + body;
}

}  // namespace

struct ZipWriter::Impl {
  explicit Impl(std::filesystem::path path)
      : path(std::move(path)), temporary(temporary_name(this->path)), file(File::create(temporary)) {}
  ~Impl() {
    if (!finished) ::unlink(temporary.c_str());
  }
  static std::filesystem::path temporary_name(std::filesystem::path path) {
    path.replace_filename(".tmp-" + path.filename().string() + "-" + std::to_string(::getpid()));
    return path;
  }
  void write(std::span<const std::byte> bytes) {
    file.write(bytes);
    position += bytes.size();
  }
  void write(const std::string& bytes) { write(std::as_bytes(std::span(bytes))); }

  std::filesystem::path path, temporary;
  File file;
  std::uint64_t position = 0;
  std::vector<ZipEntry> entries;
  std::set<std::string> names;
  bool finished = false;
};

ZipWriter::ZipWriter(std::filesystem::path file) : impl_(std::make_unique<Impl>(std::move(file))) {}
ZipWriter::~ZipWriter() = default;

void ZipWriter::add(const std::string& name, std::span<const std::span<const std::byte>> parts) {
  if (!impl_->names.insert(name).second)
    throw InvalidArgument("'" + impl_->path.string() + "': entry '" + name + "' is there already");
  if (!is_utf8(name))
    throw InvalidArgument("'" + impl_->path.string() + "': the name of an entry is not UTF-8");
  if (name.size() > UINT16_MAX) throw InvalidArgument("a name of " + std::to_string(name.size()) + " bytes");
  ZipEntry entry;
  entry.name = name;
  entry.header_at = impl_->position;
  for (const auto part : parts) {
    if (part.empty()) continue;  // without data zlib begins a new sum
    entry.bytes += part.size();
    entry.crc = static_cast<std::uint32_t>(
        crc32_z(entry.crc, reinterpret_cast<const Bytef*>(part.data()), part.size()));
  }
  entry.packed_bytes = entry.bytes;
  const std::string extra = zip64_extra({entry.bytes, entry.bytes});
  std::string header;
  put_number<std::uint32_t>(header, 0x04034B50);
  put_common(header, entry, extra.size());
  impl_->write(header + name + extra);
  for (const auto part : parts) impl_->write(part);
  impl_->entries.push_back(std::move(entry));
}

void ZipWriter::finish() {
  const std::uint64_t begin = impl_->position;
  std::string directory;
  for (const ZipEntry& entry : impl_->entries) {
    const std::string extra = zip64_extra({entry.bytes, entry.bytes, entry.header_at});
    put_number<std::uint32_t>(directory, 0x02014B50);
    put_number<std::uint16_t>(directory, kZipVersion);
    put_common(directory, entry, extra.size());
    put_number<std::uint16_t>(directory, 0);  // comment
    put_number<std::uint16_t>(directory, 0);  // disk
    put_number<std::uint16_t>(directory, 0);  // internal attributes
    put_number<std::uint32_t>(directory, 0);  // external attributes
    put_number<std::uint32_t>(directory, low(entry.header_at));
    directory += entry.name + extra;
  }
  const std::uint64_t count = impl_->entries.size(), bytes = directory.size();
  if (count >= UINT16_MAX || begin >= UINT32_MAX || bytes >= UINT32_MAX) {
    const std::uint64_t end_at = begin + bytes;
    put_number<std::uint32_t>(directory, 0x06064B50);
    put_number<std::uint64_t>(directory, 44);  // bytes that follow
    put_number<std::uint16_t>(directory, kZipVersion);
    put_number<std::uint16_t>(directory, kZipVersion);
    put_number<std::uint32_t>(directory, 0);
    put_number<std::uint32_t>(directory, 0);
    put_number<std::uint64_t>(directory, count);
    put_number<std::uint64_t>(directory, count);
    put_number<std::uint64_t>(directory, bytes);
    put_number<std::uint64_t>(directory, begin);
    put_number<std::uint32_t>(directory, 0x07064B50);
    put_number<std::uint32_t>(directory, 0);
    put_number<std::uint64_t>(directory, end_at);
    put_number<std::uint32_t>(directory, 1);
  }
  put_number<std::uint32_t>(directory, 0x06054B50);
  put_number<std::uint32_t>(directory, 0);  // disks
  const auto short_count = static_cast<std::uint16_t>(std::min<std::uint64_t>(count, UINT16_MAX));
  put_number<std::uint16_t>(directory, short_count);
  put_number<std::uint16_t>(directory, short_count);
  put_number<std::uint32_t>(directory, low(bytes));
  put_number<std::uint32_t>(directory, low(begin));
  put_number<std::uint16_t>(directory, 0);
  impl_->write(directory);
  impl_->file.sync();
  impl_->file.close();
  rename_path(impl_->temporary, impl_->path);
  impl_->finished = true;
}

}  // namespace braid
