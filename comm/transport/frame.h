// The frame grammar of the data plane (docs/design/formats/wire.md): encoding, decoding and checking of frame
// headers and of the two frame kinds that carry an error. Pure functions; knows no sockets.
//
//   frame := header meta payload
//   header (32 bytes, little-endian): u32 magic, u8 version, u8 kind, u16 type, u64 id, u64 payload_bytes,
//                                     u32 meta_bytes, u32 crc = CRC-32C of the 28 bytes before it and of meta
//
// Throws: DataLoss, with the offending value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace braid::comm {

/// On the wire: never renumber.
enum class FrameKind : std::uint8_t {
  Request = 1,
  Reply = 2,
  Error = 3,    // the answer to one request: meta is an error record, no payload
  Goodbye = 4,  // id 0; meta is an error record: why the sender is about to close the connection
};

/// Of the proofs of connections that carry frames (token_handshake.h).
inline constexpr const char* kDataPurpose = "frames 1";
inline constexpr std::uint32_t kFrameMagic = 0x44415242;  // "BRAD"
inline constexpr std::uint8_t kFrameVersion = 1;
inline constexpr std::size_t kFrameHeaderBytes = 32;
inline constexpr std::size_t kMaxMetaBytes = std::size_t{16} << 20;

struct FrameHeader {
  FrameKind kind = FrameKind::Request;
  std::uint16_t type = 0;
  std::uint64_t id = 0;
  std::uint64_t payload_bytes = 0;
  std::uint32_t meta_bytes = 0;
  std::uint32_t crc = 0;
};

using EncodedHeader = std::array<std::byte, kFrameHeaderBytes>;

/// The header of a frame with this meta. `meta_bytes` and `crc` of `header` are computed, not read.
/// Throws: InvalidArgument when meta is longer than kMaxMetaBytes.
EncodedHeader encode_frame_header(const FrameHeader& header, std::span<const std::byte> meta);

/// Checks magic, version, kind and meta_bytes; the CRC is checked once meta is there too.
FrameHeader decode_frame_header(std::span<const std::byte, kFrameHeaderBytes> raw);
void check_frame_crc(std::span<const std::byte, kFrameHeaderBytes> raw, std::span<const std::byte> meta);

/// An error record as meta: u32 code, then the text.
std::vector<std::byte> encode_error_meta(const ErrorRecord& error);
ErrorRecord decode_error_meta(std::span<const std::byte> meta);

}  // namespace braid::comm
