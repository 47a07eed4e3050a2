// What each side of a new connection between two ranks says first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace braid::comm {

/// On the wire as it lies in memory: little-endian, as all machines that this runs on.
struct Hello {
  static constexpr std::uint32_t kMagic = 0x474e4952;  // "RING"
  static constexpr std::uint32_t kVersion = 1;

  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::uint32_t channel = 0;  // 0: data, 1: control
  std::uint32_t reserved = 0;
  std::uint64_t group = 0;  // a number that rank 0 drew for this communicator

  std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(this, 1)); }
  /// What is wrong with it for a rank that would say `mine` and expects to hear `from`, or nothing.
  std::string objection(const Hello& mine, int from) const;
};

static_assert(sizeof(Hello) == 32, "no padding travels");

}  // namespace braid::comm
