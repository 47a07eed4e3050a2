#include "comm/transport/frame.h"

#include <fmt/core.h>

#include <bit>
#include <cstring>

#include "base/crc32c.h"

namespace braid::comm {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are little-endian and copied as they are");

constexpr std::size_t kCrcOffset = kFrameHeaderBytes - sizeof(std::uint32_t);

template <class T>
void put(EncodedHeader& raw, std::size_t offset, T value) {
  std::memcpy(raw.data() + offset, &value, sizeof(value));
}

template <class T>
T get(std::span<const std::byte> raw, std::size_t offset) {
  T value;
  std::memcpy(&value, raw.data() + offset, sizeof(value));
  return value;
}

std::uint32_t frame_crc(std::span<const std::byte> raw, std::span<const std::byte> meta) {
  return crc32c(meta, crc32c(raw.first(kCrcOffset)));
}

}  // namespace

EncodedHeader encode_frame_header(const FrameHeader& header, std::span<const std::byte> meta) {
  if (meta.size() > kMaxMetaBytes)
    throw InvalidArgument(
        fmt::format("[transport] meta of {} bytes is over the limit of {}", meta.size(), kMaxMetaBytes));
  EncodedHeader raw;
  put(raw, 0, kFrameMagic);
  put(raw, 4, kFrameVersion);
  put(raw, 5, static_cast<std::uint8_t>(header.kind));
  put(raw, 6, header.type);
  put(raw, 8, header.id);
  put(raw, 16, header.payload_bytes);
  put(raw, 24, static_cast<std::uint32_t>(meta.size()));
  put(raw, kCrcOffset, frame_crc(raw, meta));
  return raw;
}

FrameHeader decode_frame_header(std::span<const std::byte, kFrameHeaderBytes> raw) {
  if (auto magic = get<std::uint32_t>(raw, 0); magic != kFrameMagic)
    throw DataLoss(fmt::format("bad frame: magic {:#010x}, expected {:#010x}", magic, kFrameMagic));
  if (auto version = get<std::uint8_t>(raw, 4); version != kFrameVersion)
    throw DataLoss(fmt::format("bad frame: version {}, this program speaks {}", version, kFrameVersion));
  auto kind = get<std::uint8_t>(raw, 5);
  if (kind < static_cast<std::uint8_t>(FrameKind::Request) ||
      kind > static_cast<std::uint8_t>(FrameKind::Goodbye))
    throw DataLoss(fmt::format("bad frame: unknown kind {}", kind));
  FrameHeader header;
  header.kind = static_cast<FrameKind>(kind);
  header.type = get<std::uint16_t>(raw, 6);
  header.id = get<std::uint64_t>(raw, 8);
  header.payload_bytes = get<std::uint64_t>(raw, 16);
  header.meta_bytes = get<std::uint32_t>(raw, 24);
  header.crc = get<std::uint32_t>(raw, kCrcOffset);
  if (header.meta_bytes > kMaxMetaBytes)
    throw DataLoss(
        fmt::format("bad frame: meta of {} bytes is over the limit of {}", header.meta_bytes, kMaxMetaBytes));
  return header;
}

void check_frame_crc(std::span<const std::byte, kFrameHeaderBytes> raw, std::span<const std::byte> meta) {
  auto computed = frame_crc(raw, meta);
  auto sent = get<std::uint32_t>(raw, kCrcOffset);
  if (computed != sent)
    throw DataLoss(fmt::format("bad frame: CRC {:#010x}, expected {:#010x}", sent, computed));
}

std::vector<std::byte> encode_error_meta(const ErrorRecord& error) {
  auto code = static_cast<std::uint32_t>(error.code);
  std::vector<std::byte> meta(sizeof(code) + error.message.size());
  std::memcpy(meta.data(), &code, sizeof(code));
  std::memcpy(meta.data() + sizeof(code), error.message.data(), error.message.size());
  return meta;
}

ErrorRecord decode_error_meta(std::span<const std::byte> meta) {
  if (meta.size() < sizeof(std::uint32_t)) throw DataLoss("bad frame: error record of too few bytes");
  auto code = get<std::uint32_t>(meta, 0);
  if (code < static_cast<std::uint32_t>(ErrorCode::InvalidArgument) ||
      code > static_cast<std::uint32_t>(ErrorCode::OutOfRange))
    throw DataLoss(fmt::format("bad frame: unknown error code {}", code));
  auto text = meta.subspan(sizeof(code));
  return {static_cast<ErrorCode>(code), std::string(reinterpret_cast<const char*>(text.data()), text.size())};
}

}  // namespace braid::comm
