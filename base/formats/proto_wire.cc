#include "base/formats/proto_wire.h"

#include <cstring>

#include "base/error.h"

namespace braid {

std::uint32_t WireReader::fixed32() const {
  std::uint32_t value = 0;
  std::memcpy(&value, bytes_.data(), sizeof(value));
  return value;
}

std::uint64_t WireReader::read_long_varint() {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (at_ == end_) fail("the message ends inside a varint");
    const auto byte = static_cast<unsigned char>(*at_++);
    value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  fail("a varint of more than 10 bytes");
}

void WireReader::fail(const std::string& what) const {
  throw DataLoss("byte " + std::to_string(offset_ + position()) + ": " + what);
}

void WireReader::fail_short(std::uint64_t count) const {
  fail("a field of " + std::to_string(count) + " bytes, and " + std::to_string(end_ - at_) + " are left");
}

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void put_tag(std::string& out, int field, WireType type) {
  put_varint(out, static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(type));
}

void put_varint_field(std::string& out, int field, std::uint64_t value) {
  put_tag(out, field, WireType::Varint);
  put_varint(out, value);
}

void put_fixed32_field(std::string& out, int field, std::uint32_t value) {
  put_tag(out, field, WireType::Fixed32);
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void put_bytes_field(std::string& out, int field, std::string_view bytes) {
  put_tag(out, field, WireType::Bytes);
  put_varint(out, bytes.size());
  out.append(bytes);
}

}  // namespace braid
