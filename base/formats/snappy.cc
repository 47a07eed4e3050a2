#include "base/formats/snappy.h"

#include "base/error.h"
#include "base/formats/proto_wire.h"

namespace braid {
namespace {

// The longest copy is 64 bytes and needs 3: no block unpacks to much more than that.
constexpr std::uint64_t kMostPacked = 32;

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

}  // namespace

std::string snappy_unpack(std::string_view packed) {
  WireReader in(packed);
  const auto fail = [&](const char* what) {
    throw DataLoss("snappy block, byte " + std::to_string(in.position()) + ": " + what);
  };
  if (in.at_end()) fail("it is empty");
  const std::uint64_t size = in.read_varint();
  if (size / kMostPacked > packed.size()) fail("its length cannot be right");
  std::string out;
  out.reserve(size);
  while (!in.at_end()) {
    const auto tag = static_cast<unsigned char>(in.take(1)[0]);
    std::uint64_t length = (tag >> 2) + 1U, offset = 0;
    switch (tag & 3) {
      case 0:  // a literal; 60 to 63: its length - 1 in 1 to 4 bytes
        if (length > 60) length = little_endian(in.take(length - 60)) + 1;
        if (length > size - out.size()) fail("a literal beyond the end");
        out.append(in.take(length));
        continue;
      case 1:
        length = ((tag >> 2) & 7) + 4U;
        offset = std::uint64_t{tag & 0xE0U} << 3 | little_endian(in.take(1));
        break;
      case 2:
        offset = little_endian(in.take(2));
        break;
      default:
        offset = little_endian(in.take(4));
    }
    if (offset == 0 || offset > out.size()) fail("a copy from before the beginning");
    if (length > size - out.size()) fail("a copy beyond the end");
    for (std::size_t from = out.size() - offset; length > 0; --length)
      out.push_back(out[from++]);  // may overlap
  }
  if (out.size() != size) fail("it ends early");
  return out;
}

}  // namespace braid
