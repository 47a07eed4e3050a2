// The wire format of protocol buffers, field by field: for messages that are read by the million
// (tf.train.Example) and for formats of other programs that base must not need generated code for. Knows no
// message; callers say which field is which. Encoding: https://protobuf.dev/programming-guides/encoding.
// Thread rule: values; the bytes outlive the reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace braid {

enum class WireType : int { Varint = 0, Fixed64 = 1, Bytes = 2, Fixed32 = 5 };

class WireReader {
 public:
  /// `offset` is added to positions in error texts: where `message` begins in what the user knows.
  explicit WireReader(std::string_view message, std::size_t offset = 0)
      : begin_(message.data()), at_(message.data()), end_(message.data() + message.size()), offset_(offset) {}

  /// Reads the next field; false at the end. Throws: DataLoss("byte <n>: <what>").
  bool next() {
    if (at_ == end_) return false;
    const std::uint64_t tag = read_varint();
    field_ = static_cast<int>(tag >> 3);
    if (field_ == 0 || tag > UINT32_MAX) fail("a field number of 0, or one too large");
    type_ = static_cast<WireType>(tag & 7);
    switch (type_) {
      case WireType::Varint:
        value_ = read_varint();
        return true;
      case WireType::Fixed64:
        bytes_ = take(8);
        return true;
      case WireType::Fixed32:
        bytes_ = take(4);
        return true;
      case WireType::Bytes:
        bytes_ = take(read_varint());
        return true;
    }
    fail("wire type " + std::to_string(tag & 7));
  }

  int field() const { return field_; }
  WireType type() const { return type_; }
  bool is(int field, WireType type) const { return field_ == field && type_ == type; }

  /// REQUIRES: type() == Varint.
  std::uint64_t varint() const { return value_; }
  /// REQUIRES: type() == Bytes; or Fixed32, Fixed64: their 4 or 8 bytes.
  std::string_view bytes() const { return bytes_; }
  /// REQUIRES: type() == Fixed32.
  std::uint32_t fixed32() const;
  /// A reader of the message in bytes(), whose errors count from the same place.
  WireReader message() const {
    return WireReader(bytes_, offset_ + static_cast<std::size_t>(bytes_.data() - begin_));
  }

  /// Bare varints one after the other, as in a packed field or a list of lengths. REQUIRES: !at_end().
  std::uint64_t read_varint() {
    if (at_ != end_ && static_cast<unsigned char>(*at_) < 0x80) return static_cast<unsigned char>(*at_++);
    return read_long_varint();
  }
  bool at_end() const { return at_ == end_; }
  /// Bytes read so far.
  std::size_t position() const { return static_cast<std::size_t>(at_ - begin_); }
  /// The next `count` bytes. Throws: DataLoss when there are fewer.
  std::string_view take(std::uint64_t count) {
    if (count > static_cast<std::uint64_t>(end_ - at_)) fail_short(count);
    const std::string_view taken(at_, count);
    at_ += count;
    return taken;
  }

 private:
  std::uint64_t read_long_varint();
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void fail_short(std::uint64_t count) const;

  const char* begin_;
  const char* at_;
  const char* end_;
  std::size_t offset_;
  int field_ = 0;
  WireType type_ = WireType::Varint;
  std::uint64_t value_ = 0;
  std::string_view bytes_;
};

void put_varint(std::string& out, std::uint64_t value);
void put_tag(std::string& out, int field, WireType type);
void put_varint_field(std::string& out, int field, std::uint64_t value);
void put_fixed32_field(std::string& out, int field, std::uint32_t value);
void put_bytes_field(std::string& out, int field, std::string_view bytes);

}  // namespace braid
