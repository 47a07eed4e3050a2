// CRC-32C (Castagnoli, polynomial 0x1EDC6F41, reflected; RFC 3720 appendix B.4), for checkpoint blocks,
// frames and TFRecord files. Three interleaved streams of the SSE4.2 instruction where the CPU has it, eight
// tables elsewhere. Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace braid {

/// The CRC of `data`. With the CRC of what came before as `seed`, the CRC of both together.
std::uint32_t crc32c(std::span<const std::byte> data, std::uint32_t seed = 0);

/// The same, without special instructions.
std::uint32_t crc32c_portable(std::span<const std::byte> data, std::uint32_t seed = 0);

/// The form in which TFRecord files and checkpoints store a CRC, so that the CRC of data that contains CRCs
/// stays useful: rotated right by 15 bits, plus 0xA282EAD8.
constexpr std::uint32_t crc32c_mask(std::uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U; }
constexpr std::uint32_t crc32c_unmask(std::uint32_t masked) {
  const std::uint32_t rotated = masked - 0xA282EAD8U;
  return (rotated >> 17) | (rotated << 15);
}

/// "sse4.2" or "tables": what crc32c() uses on this machine.
const char* crc32c_implementation();

}  // namespace braid
