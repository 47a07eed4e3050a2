#include "comm/ring/notice.h"

#include <array>
#include <cstring>

namespace braid::comm {
namespace {

constexpr std::uint32_t kMaxText = 4096;

struct Header {
  std::uint32_t kind;
  std::uint32_t code;
  std::int32_t rank;
  std::uint32_t text_bytes;
};

}  // namespace

std::vector<std::byte> encode_notice(const Notice& notice) {
  auto text = notice.text.substr(0, kMaxText);
  Header header{static_cast<std::uint32_t>(notice.kind), static_cast<std::uint32_t>(notice.code), notice.rank,
                static_cast<std::uint32_t>(text.size())};
  std::vector<std::byte> bytes(sizeof(header) + text.size());
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::memcpy(bytes.data() + sizeof(header), text.data(), text.size());
  return bytes;
}

void NoticeReader::read(Stream& stream, IoStatus& status) {
  std::array<std::byte, 4096> buffer;
  do {
    iovec piece{buffer.data(), buffer.size()};
    status = stream.read({&piece, 1});
    bytes_.insert(bytes_.end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(status.bytes));
  } while (!status.wait && !status.ended);
}

std::optional<Notice> NoticeReader::next() {
  Header header;
  if (bytes_.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, bytes_.data(), sizeof(header));
  bool known = header.kind == static_cast<std::uint32_t>(Notice::Kind::Waiting) ||
               header.kind == static_cast<std::uint32_t>(Notice::Kind::Failed);
  if (!known || header.text_bytes > kMaxText ||
      header.code < static_cast<std::uint32_t>(ErrorCode::InvalidArgument) ||
      header.code > static_cast<std::uint32_t>(ErrorCode::OutOfRange))
    throw DataLoss("it sent a bad notice");
  auto bytes = sizeof(header) + header.text_bytes;
  if (bytes_.size() < bytes) return std::nullopt;
  Notice notice{
      static_cast<Notice::Kind>(header.kind), static_cast<ErrorCode>(header.code), header.rank,
      std::string(reinterpret_cast<const char*>(bytes_.data()) + sizeof(header), header.text_bytes)};
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(bytes));
  return notice;
}

}  // namespace braid::comm
