#include "engine/input/formats/tfrecord.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/crc32c.h"
#include "base/error.h"

namespace braid {
namespace {

constexpr std::size_t kHeader = 12, kFooter = 4;
constexpr std::size_t kChunk = std::size_t{1} << 20;

template <class T>
T load(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

std::uint32_t masked_crc(const char* bytes, std::size_t size) {
  return crc32c_mask(crc32c(std::as_bytes(std::span(bytes, size))));
}

}  // namespace

bool looks_like_tfrecord(std::span<const char> head) {
  return head.size() >= kHeader && masked_crc(head.data(), 8) == load<std::uint32_t>(head.data() + 8);
}

bool is_tfrecord_file(const std::filesystem::path& file) {
  std::array<char, kHeader> head{};
  return looks_like_tfrecord(std::span(head).first(open_bytes(file, looks_like_tfrecord)->read(head)));
}

TfRecordReader::TfRecordReader(const std::filesystem::path& file)
    : file_(file), source_(open_bytes(file, looks_like_tfrecord)) {}
TfRecordReader::TfRecordReader(const FilePiece& piece)
    : file_(piece.file),
      source_(open_piece(piece, looks_like_tfrecord)),
      next_at_(piece.begin),
      number_(piece.lines_before) {}
TfRecordReader::~TfRecordReader() = default;

void TfRecordReader::fail(const std::string& what, bool lost) {
  lost_ = lost_ || lost;
  throw DataLoss(fmt::format("'{}' record {} at byte {}: {}", file_.string(), number_, record_at_, what));
}

/// True when `count` bytes from begin_ on are in the buffer, false when the file ends before. The buffer
/// grows with what was read, never by what a length says.
bool TfRecordReader::fill(std::uint64_t count) {
  while (end_ - begin_ < count) {
    if (begin_ > 0) {
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    if (end_ == buffer_.size()) buffer_.resize(std::max(kChunk, buffer_.size() * 2));
    std::size_t got = 0;
    try {
      got = source_->read(std::span(buffer_).subspan(end_));
    } catch (const DataLoss& e) {
      fail(e.message(), true);
    }
    if (got == 0) return false;
    end_ += got;
  }
  return true;
}

std::optional<std::string_view> TfRecordReader::next() {
  if (lost_) return std::nullopt;
  record_at_ = next_at_;
  ++number_;
  if (!fill(kHeader)) {
    if (begin_ == end_) {
      --number_;
      return std::nullopt;
    }
    fail(fmt::format("truncated: {} of the 12 bytes of its header", end_ - begin_), true);
  }
  const auto length = load<std::uint64_t>(buffer_.data() + begin_);
  if (const auto crc = masked_crc(buffer_.data() + begin_, 8);
      crc != load<std::uint32_t>(buffer_.data() + begin_ + 8))
    fail(fmt::format("the CRC of its length does not match{}",
                     record_at_ == 0 ? ": not a TFRecord file, or a damaged one" : ""),
         true);
  const std::uint64_t size = kHeader + length + kFooter;
  if (size < length || !fill(size))
    fail(fmt::format("truncated: {} of the {} bytes of its data and their CRC", end_ - begin_ - kHeader,
                     length + kFooter),
         true);
  const char* data = buffer_.data() + begin_ + kHeader;
  begin_ += size;
  frame_bytes_ = size;
  next_at_ += size;
  if (masked_crc(data, length) != load<std::uint32_t>(data + length))
    fail(fmt::format("the CRC of its {} bytes of data does not match", length), false);
  return std::string_view(data, length);
}

}  // namespace braid
