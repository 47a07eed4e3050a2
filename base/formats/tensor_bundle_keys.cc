// Keys of slices: numbers and text encoded so that their bytes sort like they do
// (tensorflow/core/lib/strings, ordered_code.h).
#include <array>
#include <bit>

#include "base/formats/tensor_bundle.h"

namespace braid {
namespace {

/// The number of bytes, then the bytes, most significant first.
void put_unsigned(std::string& out, std::uint64_t value) {
  const int bytes = (std::bit_width(value) + 7) / 8;
  out.push_back(static_cast<char>(bytes));
  for (int i = bytes; i-- > 0;) out.push_back(static_cast<char>(value >> (8 * i)));
}

/// 0x00 and 0xFF are escaped; "\0\1" ends it.
void put_text(std::string& out, const std::string& text) {
  for (const char c : text) {
    out.push_back(c);
    if (c == '\0') out.push_back('\xFF');
    if (c == '\xFF') out.push_back('\0');
  }
  out += std::string("\0\1", 2);
}

/// Two's complement in as few bytes as hold 7 bits each, the first bits saying how many they are.
void put_signed(std::string& out, std::int64_t value) {
  const std::uint64_t magnitude =
      value < 0 ? ~static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  const int bytes = std::bit_width(magnitude) / 7 + 1;
  constexpr std::array<std::uint16_t, 11> kLengthBits{0,      0x8000, 0xC000, 0xE000, 0xF000, 0xF800,
                                                      0xFC00, 0xFE00, 0xFF00, 0xFF80, 0xFFC0};
  std::array<unsigned char, 10> buffer;
  buffer.fill(value < 0 ? 0xFF : 0);
  for (int i = 0; i < 8; ++i)
    buffer[static_cast<std::size_t>(9 - i)] =
        static_cast<unsigned char>(static_cast<std::uint64_t>(value) >> (8 * i));
  const auto begin = static_cast<std::size_t>(10 - bytes);
  const std::uint16_t bits = kLengthBits[static_cast<std::size_t>(bytes)];
  buffer[begin] = static_cast<unsigned char>(buffer[begin] ^ (bits >> 8));
  if (bytes > 1) buffer[begin + 1] = static_cast<unsigned char>(buffer[begin + 1] ^ (bits & 0xFF));
  out.append(reinterpret_cast<const char*>(buffer.data()) + begin, static_cast<std::size_t>(bytes));
}

}  // namespace

std::string bundle_slice_key(const std::string& name, const BundleEntry::Slice& slice) {
  std::string key;
  put_unsigned(key, 0);  // what slices begin with, and no name of a tensor does
  put_text(key, name);
  put_unsigned(key, slice.begin.size());
  for (std::size_t d = 0; d < slice.begin.size(); ++d) {
    put_signed(key, slice.begin[d]);
    put_signed(key, slice.length[d]);
  }
  return key;
}

}  // namespace braid
