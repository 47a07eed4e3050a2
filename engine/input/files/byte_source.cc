#include "engine/input/files/byte_source.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <vector>

#include "base/crc32c.h"
#include "base/error.h"
#include "engine/input/files/data_file.h"
#include "engine/input/files/file_piece.h"
#include "engine/input/files/standard_input.h"
#include "engine/input/files/unpacker.h"

namespace braid {
namespace {

constexpr std::size_t kHead = 12;
constexpr std::size_t kPackedChunk = std::size_t{1} << 18;

class PlainSource : public ByteSource {
 public:
  explicit PlainSource(std::shared_ptr<DataFile> file) : file_(std::move(file)), size_(file_->size()) {
    file_->advise_sequential();
  }
  std::size_t read(std::span<char> out) override {
    const std::size_t count = std::min<std::uint64_t>(out.size(), size_ - at_);
    file_->read_at(at_, std::as_writable_bytes(out.first(count)));
    at_ += count;
    return count;
  }
  Compression compression() const override { return Compression::None; }
  std::uint64_t bytes_left_at_most() const override { return size_ - at_; }

 private:
  std::shared_ptr<DataFile> file_;
  std::uint64_t size_;
  std::uint64_t at_ = 0;
};

/// The packed bytes of a file, a piece at a time.
class PackedBytes {
 public:
  PackedBytes(std::unique_ptr<ByteSource> source, std::string name)
      : source_(std::move(source)), name_("'" + std::move(name) + "'"), bytes_(kPackedChunk) {}
  const std::string& name() const { return name_; }
  bool at_end() const { return at_end_; }
  /// The next piece, empty at the end.
  std::span<char> next() {
    const std::size_t count = source_->read(bytes_);
    at_end_ = count < bytes_.size();
    return std::span(bytes_).first(count);
  }

 private:
  std::unique_ptr<ByteSource> source_;
  std::string name_;
  std::vector<char> bytes_;
  bool at_end_ = false;
};

class InflatingSource : public ByteSource {
 public:
  InflatingSource(PackedBytes packed, Compression compression)
      : packed_(std::move(packed)), compression_(compression) {
    constexpr int kWindow = 15, kGzipHeader = 16;
    const int window = compression == Compression::Gzip ? kWindow + kGzipHeader : kWindow;
    if (inflateInit2(&stream_, window) != Z_OK) throw OutOfMemory("zlib: no memory for a stream");
  }
  ~InflatingSource() override { inflateEnd(&stream_); }
  InflatingSource(const InflatingSource&) = delete;
  InflatingSource& operator=(const InflatingSource&) = delete;

  std::size_t read(std::span<char> out) override {
    std::size_t filled = 0;
    while (filled < out.size() && !ended_) {
      if (stream_.avail_in == 0) refill();
      const std::size_t room = std::min<std::size_t>(out.size() - filled, UINT32_MAX);
      stream_.next_out = reinterpret_cast<Bytef*>(out.data() + filled);
      stream_.avail_out = static_cast<uInt>(room);
      const int result = inflate(&stream_, Z_NO_FLUSH);
      const std::size_t got = room - stream_.avail_out;
      filled += got;
      given_ += got;
      if (result == Z_STREAM_END)
        next_member();
      else if (result == Z_MEM_ERROR)
        throw OutOfMemory("zlib: no memory to inflate " + packed_.name());
      else if (result != Z_OK && result != Z_BUF_ERROR)
        damaged("damaged", stream_.msg ? stream_.msg : "not a deflate stream");
      else if (got == 0 && stream_.avail_in == 0 && packed_.at_end())
        throw DataLoss(packed_.name() + ": " + compression_name(compression_) + " data ends early after " +
                       std::to_string(given_) + " bytes: truncated");
    }
    return filled;
  }
  Compression compression() const override { return compression_; }
  std::uint64_t bytes_left_at_most() const override { return std::numeric_limits<std::uint64_t>::max(); }

 private:
  void refill() {
    const std::span<char> piece = packed_.at_end() ? std::span<char>() : packed_.next();
    stream_.next_in = reinterpret_cast<Bytef*>(piece.data());
    stream_.avail_in = static_cast<uInt>(piece.size());
  }
  /// Another gzip member may follow; zeros after the last one are padding of tapes and blocks.
  void next_member() {
    if (stream_.avail_in == 0) refill();
    while (stream_.avail_in > 0 && *stream_.next_in == 0) {
      ++stream_.next_in;
      if (--stream_.avail_in == 0) refill();
    }
    ended_ = stream_.avail_in == 0;
    if (ended_) return;
    if (compression_ == Compression::Zlib) damaged("there are bytes after", "of another stream or of none");
    inflateReset(&stream_);
  }
  [[noreturn]] void damaged(const char* how, const std::string& why) const {
    throw DataLoss(packed_.name() + ": " + how + " " + compression_name(compression_) + " data after " +
                   std::to_string(given_) + " bytes: " + why);
  }

  PackedBytes packed_;
  Compression compression_;
  std::uint64_t given_ = 0;  // inflated bytes so far
  z_stream stream_{};
  bool ended_ = false;
};

/// zstd and lz4: frames, several too.
class UnpackingSource : public ByteSource {
 public:
  UnpackingSource(PackedBytes packed, Compression compression)
      : packed_(std::move(packed)),
        compression_(compression),
        unpacker_(compression == Compression::Zstd ? make_zstd_unpacker() : make_lz4_unpacker()) {}
  std::size_t read(std::span<char> out) override {
    std::span<char> room = out;
    while (!room.empty()) {
      if (left_.empty() && !packed_.at_end()) left_ = packed_.next();
      const std::size_t in = left_.size(), before = room.size();
      if (const std::string problem = unpacker_->step(left_, room); !problem.empty())
        fail("damaged " + std::string(compression_name(compression_)) + " data", problem);
      given_ += before - room.size();
      if (in > 0 || room.size() < before) continue;
      if (unpacker_->inside())
        fail(std::string(compression_name(compression_)) + " data ends early", "truncated");
      break;
    }
    return out.size() - room.size();
  }
  Compression compression() const override { return compression_; }
  std::uint64_t bytes_left_at_most() const override { return std::numeric_limits<std::uint64_t>::max(); }

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& why) const {
    throw DataLoss(packed_.name() + ": " + what + " after " + std::to_string(given_) + " bytes: " + why);
  }
  PackedBytes packed_;
  const Compression compression_;
  const std::unique_ptr<Unpacker> unpacker_;
  std::span<const char> left_;  // of packed_
  std::uint64_t given_ = 0;
};

/// A piece of a plain file, behind the file's header: read at once, so that its CRC is known before its first
/// record is.
class PieceSource : public ByteSource {
 public:
  explicit PieceSource(const FilePiece& piece) {
    if (piece.bytes) {
      bytes_.assign(piece.bytes->begin() + static_cast<std::ptrdiff_t>(piece.begin),
                    piece.bytes->begin() + static_cast<std::ptrdiff_t>(piece.end));
      return;
    }
    const std::shared_ptr<DataFile> file = open_data_file(piece.file);
    if (file->size() < piece.end)
      throw DataLoss("'" + piece.file.string() + "': " + std::to_string(file->size()) +
                     " bytes, but it was indexed with " + std::to_string(piece.end) +
                     " or more: truncated since");
    bytes_.resize(piece.header_end + (piece.end - piece.begin));
    const auto all = std::as_writable_bytes(std::span(bytes_));
    if (piece.header_end > 0) file->read_at(0, all.first(piece.header_end));
    const auto records = all.subspan(piece.header_end);
    if (piece.reads)
      piece.reads->read(piece.file, piece.begin, records);
    else
      file->read_at(piece.begin, records);
    if (piece.crc && crc32c(records) != *piece.crc)
      throw DataLoss("'" + piece.file.string() + "': bytes " + std::to_string(piece.begin) + " to " +
                     std::to_string(piece.end) +
                     " are not those that were indexed: the file was changed; "
                     "start again, which makes a new index");
  }
  std::size_t read(std::span<char> out) override {
    const std::size_t count = std::min(out.size(), bytes_.size() - at_);
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(at_), count, out.begin());
    at_ += count;
    return count;
  }
  Compression compression() const override { return Compression::None; }
  std::uint64_t bytes_left_at_most() const override { return bytes_.size() - at_; }

 private:
  std::vector<char> bytes_;
  std::size_t at_ = 0;
};

}  // namespace

std::unique_ptr<ByteSource> open_piece(const FilePiece& piece, IsPlain is_plain) {
  if (piece.is_whole()) return open_bytes(piece.file, is_plain);
  return std::make_unique<PieceSource>(piece);
}

const char* compression_name(Compression compression) {
  switch (compression) {
    case Compression::Gzip:
      return "gzip";
    case Compression::Zlib:
      return "zlib";
    case Compression::Zstd:
      return "zstd";
    case Compression::Lz4:
      return "lz4";
    case Compression::None:
      break;
  }
  return "none";
}

namespace {

/// By the first bytes of a file.
Compression compression_of(std::span<const char> head, IsPlain is_plain) {
  if (head.size() < 2 || (is_plain && is_plain(head))) return Compression::None;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(head[i]); };
  if (byte(0) == 0x1F && byte(1) == 0x8B) return Compression::Gzip;
  const std::uint32_t magic =
      head.size() < 4 ? 0
                      : byte(0) | byte(1) << 8U | byte(2) << 16U | static_cast<std::uint32_t>(byte(3)) << 24U;
  if (magic == 0xFD2FB528) return Compression::Zstd;
  if (magic == 0x184D2204) return Compression::Lz4;
  const bool zlib = (byte(0) & 0x0F) == 8 && byte(0) <= 0x78 && (byte(0) * 256 + byte(1)) % 31 == 0;
  // A TFRecord whose length has a wrong CRC begins like zlib now and then; the upper half of it is zero.
  const bool length = std::all_of(head.begin() + std::min<std::ptrdiff_t>(4, std::ssize(head)),
                                  head.begin() + std::min<std::ptrdiff_t>(8, std::ssize(head)),
                                  [](char c) { return c == 0; });
  return zlib && is_plain && !(length && head.size() == kHead) ? Compression::Zlib : Compression::None;
}

}  // namespace

std::unique_ptr<ByteSource> open_bytes(const std::filesystem::path& file, IsPlain is_plain) {
  const std::shared_ptr<DataFile> opened = file == "-" ? nullptr : open_data_file(file);
  const auto from_its_front = [&]() -> std::unique_ptr<ByteSource> {
    if (!opened) return open_standard_input();
    return std::make_unique<PlainSource>(opened);
  };
  std::array<char, kHead> bytes{};
  std::unique_ptr<ByteSource> source = from_its_front();
  const auto head = std::span<const char>(bytes).first(source->read(bytes));
  const Compression compression = compression_of(head, is_plain);
  source = from_its_front();
  if (compression == Compression::None) return source;
  PackedBytes packed(std::move(source), file.string());
  if (compression == Compression::Zstd || compression == Compression::Lz4)
    return std::make_unique<UnpackingSource>(std::move(packed), compression);
  return std::make_unique<InflatingSource>(std::move(packed), compression);
}

}  // namespace braid
