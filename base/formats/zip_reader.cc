#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/files.h"
#include "base/formats/zip.h"

namespace braid {
namespace {

constexpr std::uint32_t kEndMagic = 0x06054B50, kEnd64Magic = 0x06064B50, kLocator64Magic = 0x07064B50,
                        kDirectoryMagic = 0x02014B50, kLocalMagic = 0x04034B50;
constexpr std::size_t kEndBytes = 22, kLocatorBytes = 20, kEnd64Bytes = 56, kDirectoryBytes = 46,
                      kLocalBytes = 30;
constexpr std::size_t kMaxComment = 65535;
constexpr std::uint16_t kZip64Extra = 1;

template <class T>
T load(const std::string& bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

}  // namespace

struct ZipReader::Impl {
  explicit Impl(const std::filesystem::path& path) : file(File::open(path)), size(file.size()) {}
  [[noreturn]] void fail(const std::string& what) const {
    throw DataLoss("'" + file.path().string() + "': " + what);
  }
  std::string bytes_at(std::uint64_t at, std::uint64_t count) const {
    if (at > size || count > size - at)
      fail(fmt::format("truncated: {} bytes at byte {} of {}", count, at, size));
    std::string bytes(count, '\0');
    file.read_at(at, std::as_writable_bytes(std::span(bytes)));
    return bytes;
  }
  void load_directory();
  std::uint64_t data_at(const ZipEntry& entry) const;  // behind its header
  void parse_directory(const std::string& directory, std::uint64_t count);
  void take_zip64(ZipEntry& entry, std::string_view extra) const;

  File file;
  std::uint64_t size;
  std::vector<ZipEntry> entries;
};

void ZipReader::Impl::load_directory() {
  const std::uint64_t tail_bytes = std::min<std::uint64_t>(size, kEndBytes + kMaxComment);
  const std::string tail = bytes_at(size - tail_bytes, tail_bytes);
  std::size_t at = tail.size() + 1;
  for (std::size_t i = tail.size(); i >= kEndBytes; --i)
    if (load<std::uint32_t>(tail, i - kEndBytes) == kEndMagic) {
      at = i - kEndBytes;
      break;
    }
  if (at > tail.size()) fail("not a ZIP archive, or a truncated one: it has no end of directory");
  std::uint64_t count = load<std::uint16_t>(tail, at + 10), bytes = load<std::uint32_t>(tail, at + 12),
                begin = load<std::uint32_t>(tail, at + 16);
  if (at >= kLocatorBytes && load<std::uint32_t>(tail, at - kLocatorBytes) == kLocator64Magic) {
    const std::string end = bytes_at(load<std::uint64_t>(tail, at - kLocatorBytes + 8), kEnd64Bytes);
    if (load<std::uint32_t>(end, 0) != kEnd64Magic) fail("the end of its ZIP64 directory is damaged");
    count = load<std::uint64_t>(end, 32);
    bytes = load<std::uint64_t>(end, 40);
    begin = load<std::uint64_t>(end, 48);
  }
  parse_directory(bytes_at(begin, bytes), count);
}

void ZipReader::Impl::parse_directory(const std::string& directory, std::uint64_t count) {
  std::size_t at = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (directory.size() - at < kDirectoryBytes || load<std::uint32_t>(directory, at) != kDirectoryMagic)
      fail(fmt::format("entry {} of its directory is damaged", i));
    const std::size_t name = load<std::uint16_t>(directory, at + 28),
                      extra = load<std::uint16_t>(directory, at + 30),
                      comment = load<std::uint16_t>(directory, at + 32);
    if (directory.size() - at - kDirectoryBytes < name + extra + comment)
      fail(fmt::format("entry {} of its directory is damaged", i));
    ZipEntry entry;
    entry.name = directory.substr(at + kDirectoryBytes, name);
    entry.method = load<std::uint16_t>(directory, at + 10);
    entry.crc = load<std::uint32_t>(directory, at + 16);
    entry.packed_bytes = load<std::uint32_t>(directory, at + 20);
    entry.bytes = load<std::uint32_t>(directory, at + 24);
    entry.header_at = load<std::uint32_t>(directory, at + 42);
    if (load<std::uint16_t>(directory, at + 8) & 1)
      throw InvalidArgument("'" + file.path().string() + "': entry '" + entry.name + "' is encrypted");
    take_zip64(entry, std::string_view(directory).substr(at + kDirectoryBytes + name, extra));
    entries.push_back(std::move(entry));
    at += kDirectoryBytes + name + extra + comment;
  }
}

/// Sizes and place that did not fit into 32 bits, in this order, those only.
void ZipReader::Impl::take_zip64(ZipEntry& entry, std::string_view extra) const {
  const std::string bytes(extra);
  for (std::size_t at = 0; at + 4 <= bytes.size();) {
    const std::size_t length = load<std::uint16_t>(bytes, at + 2);
    if (load<std::uint16_t>(bytes, at) == kZip64Extra) {
      std::size_t next = at + 4;
      const std::size_t end = std::min(bytes.size(), next + length);
      for (std::uint64_t* value : {&entry.bytes, &entry.packed_bytes, &entry.header_at})
        if (*value == UINT32_MAX && next + 8 <= end) {
          *value = load<std::uint64_t>(bytes, next);
          next += 8;
        }
    }
    at += 4 + length;
  }
}

ZipReader::ZipReader(const std::filesystem::path& file) : impl_(std::make_unique<Impl>(file)) {
  impl_->load_directory();
}
ZipReader::~ZipReader() = default;

const std::vector<ZipEntry>& ZipReader::entries() const { return impl_->entries; }

std::uint64_t ZipReader::Impl::data_at(const ZipEntry& entry) const {
  const std::string local = bytes_at(entry.header_at, kLocalBytes);
  if (load<std::uint32_t>(local, 0) != kLocalMagic) fail("entry '" + entry.name + "': its header is damaged");
  return entry.header_at + kLocalBytes + load<std::uint16_t>(local, 26) + load<std::uint16_t>(local, 28);
}

std::uint64_t ZipReader::stored_at(const ZipEntry& entry) const {
  if (entry.method != 0)
    throw InvalidArgument("'" + impl_->file.path().string() + "': entry '" + entry.name +
                          "' is deflated, and only stored ones are read at any place");
  const std::uint64_t at = impl_->data_at(entry);
  if (entry.bytes != entry.packed_bytes || at > impl_->size || entry.bytes > impl_->size - at)
    impl_->fail("entry '" + entry.name + "': its size cannot be right");
  return at;
}

std::vector<std::byte> ZipReader::read(const ZipEntry& entry) const {
  const auto fail = [&](const std::string& what) { impl_->fail("entry '" + entry.name + "': " + what); };
  const std::uint64_t at = impl_->data_at(entry);
  const std::string packed = impl_->bytes_at(at, entry.packed_bytes);
  // Deflate packs a byte into no less than a 1032nd of it: a larger size is not believed.
  constexpr std::uint64_t kMostPacked = 1032;
  if (entry.method == 8 && entry.bytes / kMostPacked > packed.size()) fail("its size cannot be right");
  if (entry.method == 0 && entry.bytes != packed.size()) fail("its two sizes differ");
  std::vector<std::byte> bytes;
  if (entry.method == 0) {
    bytes.resize(packed.size());
    if (!packed.empty()) std::memcpy(bytes.data(), packed.data(), packed.size());
  } else if (entry.method == 8) {
    z_stream stream{};
    constexpr int kRawDeflate = -15;
    if (inflateInit2(&stream, kRawDeflate) != Z_OK) throw OutOfMemory("zlib: no memory for a stream");
    int result = Z_OK;
    std::uint64_t in = 0, out = 0;
    constexpr std::uint64_t kPiece = std::uint64_t{1} << 30;  // zlib counts in 32 bits
    // The size is the archive's word: memory is taken as bytes come, at most twice what came.
    constexpr std::uint64_t kFirst = 1 << 16;
    bytes.resize(std::min(entry.bytes, std::max<std::uint64_t>(kFirst, 4 * packed.size())));
    while (result == Z_OK && (out < entry.bytes || in < packed.size())) {
      if (out == bytes.size()) bytes.resize(std::min<std::uint64_t>(entry.bytes, 2 * bytes.size()));
      const std::uint64_t give = std::min(kPiece, packed.size() - in),
                          room = std::min(kPiece, bytes.size() - out);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + in));
      stream.avail_in = static_cast<uInt>(give);
      stream.next_out = reinterpret_cast<Bytef*>(bytes.data() + out);
      stream.avail_out = static_cast<uInt>(room);
      result = inflate(&stream, Z_NO_FLUSH);
      in += give - stream.avail_in;
      out += room - stream.avail_out;
    }
    inflateEnd(&stream);
    if (result != Z_STREAM_END || out != entry.bytes) fail("its deflate stream is damaged");
  } else {
    throw InvalidArgument("'" + impl_->file.path().string() + "': entry '" + entry.name +
                          "' has compression method " + std::to_string(entry.method) + ", 0 and 8 are read");
  }
  if (crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()) != entry.crc)
    fail("its CRC does not match");
  return bytes;
}

}  // namespace braid
