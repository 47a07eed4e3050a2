#include "base/formats/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "base/error.h"

namespace braid {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

struct Header {
  std::string descr;
  bool fortran = false;
  std::vector<std::int64_t> shape;
  std::size_t data_at = 0;
};

/// The value text of a key in the header's Python dictionary; empty when it is not there.
std::string_view value_of(std::string_view dict, std::string_view key) {
  for (const char quote : {'\'', '"'}) {
    const std::string quoted = quote + std::string(key) + quote;
    const std::size_t at = dict.find(quoted);
    if (at == std::string_view::npos) continue;
    std::string_view rest = dict.substr(at + quoted.size());
    const std::size_t begin = rest.find_first_not_of(": ");
    return begin == std::string_view::npos ? std::string_view() : rest.substr(begin);
  }
  return {};
}

class HeaderParser {
 public:
  HeaderParser(std::span<const std::byte> bytes, const std::string& source)
      : bytes_(reinterpret_cast<const char*>(bytes.data()), bytes.size()), source_(source) {}

  NpyArray parse();
  NpyLayout layout() const;

 private:
  [[noreturn]] void fail(const std::string& what) const { throw DataLoss(source_ + ": " + what); }
  Header header() const;
  template <class T>
  T load(std::size_t at) const {
    T value;
    std::memcpy(&value, bytes_.data() + at, sizeof(value));
    return value;
  }

  std::string_view bytes_;
  const std::string& source_;
};

Header HeaderParser::header() const {
  if (!bytes_.starts_with(kMagic) || bytes_.size() < 10) fail("byte 0: not a .npy array");
  const int version = bytes_[6];
  if (version < 1 || version > 3) fail(fmt::format("byte 6: version {} of .npy, 1 to 3 are known", version));
  const std::size_t size_bytes = version == 1 ? 2 : 4;
  if (bytes_.size() < 8 + size_bytes) fail("truncated inside its header");
  const std::size_t size = version == 1 ? load<std::uint16_t>(8) : load<std::uint32_t>(8);
  Header header;
  header.data_at = 8 + size_bytes + size;
  if (header.data_at > bytes_.size())
    fail(fmt::format("truncated: a header of {} bytes in {} bytes", size, bytes_.size()));
  const std::string_view dict = bytes_.substr(8 + size_bytes, size);
  std::string_view descr = value_of(dict, "descr");
  if (descr.empty() || (descr[0] != '\'' && descr[0] != '"'))
    throw InvalidArgument(source_ + ": its elements are structures, which are not read");
  descr = descr.substr(1, descr.find(descr[0], 1) - 1);
  header.descr = descr;
  header.fortran = value_of(dict, "fortran_order").starts_with("True");
  std::string_view shape = value_of(dict, "shape");
  const std::size_t end = shape.find(')');
  if (shape.empty() || shape[0] != '(' || end == std::string_view::npos) fail("its header has no shape");
  shape = shape.substr(1, end - 1);
  while (!shape.empty()) {
    const std::size_t digit = shape.find_first_not_of(", L");
    if (digit == std::string_view::npos) break;
    shape.remove_prefix(digit);
    std::int64_t dim = 0;
    const auto read = std::from_chars(shape.data(), shape.data() + shape.size(), dim);
    if (read.ec != std::errc() || dim < 0)
      fail(fmt::format("shape '({})' in its header is no list of sizes",
                       value_of(dict, "shape").substr(1, end - 1)));
    header.shape.push_back(dim);
    shape.remove_prefix(static_cast<std::size_t>(read.ptr - shape.data()));
  }
  return header;
}

struct Kind {
  DType dtype = DType::Invalid;
  std::size_t bytes = 0;  // of an element in the file
  bool swapped = false;
  char letter = 0;
};

std::optional<Kind> kind_of(const std::string& descr) {
  if (descr.size() < 3) return std::nullopt;
  Kind kind;
  kind.swapped = descr[0] == '>';
  kind.letter = descr[1];
  const auto read = std::from_chars(descr.data() + 2, descr.data() + descr.size(), kind.bytes);
  constexpr std::size_t kWidest = std::size_t{1} << 48;
  if (read.ec != std::errc() || read.ptr != descr.data() + descr.size() || kind.bytes > kWidest)
    return std::nullopt;
  const auto one_of = [&](std::initializer_list<std::pair<std::size_t, DType>> sizes) {
    for (const auto& [bytes, dtype] : sizes)
      if (bytes == kind.bytes) kind.dtype = dtype;
  };
  if (kind.letter == 'f') one_of({{2, DType::Float16}, {4, DType::Float32}, {8, DType::Float64}});
  if (kind.letter == 'i') one_of({{1, DType::Int8}, {2, DType::Int16}, {4, DType::Int32}, {8, DType::Int64}});
  if (kind.letter == 'u')
    one_of({{1, DType::UInt8}, {2, DType::UInt16}, {4, DType::UInt32}, {8, DType::UInt64}});
  if (kind.letter == 'b') one_of({{1, DType::Bool}});
  if (kind.letter == 'V') one_of({{2, DType::BFloat16}});
  if (kind.letter == 'S' || kind.letter == 'a' || kind.letter == 'U') {
    kind.dtype = DType::String;
    if (kind.letter == 'U') kind.bytes *= 4;
  }
  if (kind.dtype == DType::Invalid) return std::nullopt;
  return kind;
}

void append_utf8(std::string& out, std::uint32_t code) {
  if (code < 0x80) {
    out.push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out.push_back(static_cast<char>(0xC0 | code >> 6));
    out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else if (code < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | code >> 12));
    out.push_back(static_cast<char>(0x80 | (code >> 6 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else {
    out.push_back(static_cast<char>(0xF0 | (code >> 18 & 7)));
    out.push_back(static_cast<char>(0x80 | (code >> 12 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code >> 6 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
  }
}

/// Elements of `bytes` each, from column-major to row-major order.
std::vector<std::byte> row_major(const std::vector<std::byte>& data, std::span<const std::int64_t> shape,
                                 std::size_t bytes) {
  std::vector<std::byte> out(data.size());
  std::vector<std::int64_t> index(shape.size(), 0);
  const std::size_t count = bytes == 0 ? 0 : data.size() / bytes;
  for (std::size_t to = 0; to < count; ++to) {
    std::size_t from = 0, stride = 1;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      from += static_cast<std::size_t>(index[d]) * stride;
      stride *= static_cast<std::size_t>(shape[d]);
    }
    std::memcpy(out.data() + to * bytes, data.data() + from * bytes, bytes);
    for (std::size_t d = shape.size(); d-- > 0;) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
  return out;
}

std::vector<std::byte> strings(const std::vector<std::byte>& data, std::size_t count, const Kind& kind) {
  std::vector<std::int64_t> offsets(count + 1, 0);
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    const char* at = reinterpret_cast<const char*>(data.data()) + i * kind.bytes;
    if (kind.letter == 'U') {
      std::size_t used = kind.bytes / 4;
      const auto code = [&](std::size_t k) {
        std::uint32_t value = 0;
        std::memcpy(&value, at + 4 * k, 4);
        return value;
      };
      while (used > 0 && code(used - 1) == 0) --used;
      for (std::size_t k = 0; k < used; ++k) append_utf8(text, code(k));
    } else {
      std::string_view padded(at, kind.bytes);
      while (padded.ends_with('\0')) padded.remove_suffix(1);
      text += padded;
    }
    offsets[i + 1] = static_cast<std::int64_t>(text.size());
  }
  std::vector<std::byte> out(offsets.size() * sizeof(std::int64_t) + text.size());
  std::memcpy(out.data(), offsets.data(), offsets.size() * sizeof(std::int64_t));
  std::memcpy(out.data() + offsets.size() * sizeof(std::int64_t), text.data(), text.size());
  return out;
}

std::string too_large(std::span<const std::int64_t> shape) {
  return fmt::format("shape ({}) has more elements than any file", fmt::join(shape, ", "));
}

NpyArray HeaderParser::parse() {
  const Header head = header();
  const auto kind = kind_of(head.descr);
  if (!kind) throw InvalidArgument(source_ + ": elements of type '" + head.descr + "' are not read");
  NpyArray array{kind->dtype, head.shape, {}};
  std::size_t count = 1, bytes = 0;
  for (const std::int64_t dim : array.shape)
    if (__builtin_mul_overflow(count, static_cast<std::size_t>(dim), &count)) fail(too_large(array.shape));
  if (__builtin_mul_overflow(count, kind->bytes, &bytes)) fail(too_large(array.shape));
  // Strings of no bytes say nothing about the file's length, and yet take memory each.
  if (kind->bytes == 0 && count > bytes_.size())
    fail(fmt::format("shape ({}) of strings without bytes, in a file of {} bytes",
                     fmt::join(array.shape, ", "), bytes_.size()));
  if (bytes_.size() - head.data_at < bytes)
    fail(fmt::format("truncated: {} of {} bytes of elements", bytes_.size() - head.data_at, bytes));
  array.data.resize(bytes);
  if (bytes > 0) std::memcpy(array.data.data(), bytes_.data() + head.data_at, bytes);
  if (kind->swapped) {
    const std::size_t unit = kind->letter == 'U' ? 4 : kind->letter == 'S' ? 1 : kind->bytes;
    for (std::size_t at = 0; at < bytes; at += unit)
      std::reverse(array.data.begin() + static_cast<std::ptrdiff_t>(at),
                   array.data.begin() + static_cast<std::ptrdiff_t>(at + unit));
  }
  if (head.fortran && array.shape.size() > 1) array.data = row_major(array.data, array.shape, kind->bytes);
  if (kind->dtype == DType::String) array.data = strings(array.data, count, *kind);
  return array;
}

NpyLayout HeaderParser::layout() const {
  Header head = header();
  const auto kind = kind_of(head.descr);
  if (!kind) throw InvalidArgument(source_ + ": elements of type '" + head.descr + "' are not read");
  const bool is_row_major = !head.fortran || head.shape.size() < 2;
  return {kind->dtype, std::move(head.shape), is_row_major && !kind->swapped, head.data_at};
}

std::string descr_of(DType dtype) {
  switch (dtype) {
    case DType::Float16:
      return "<f2";
    case DType::Float32:
      return "<f4";
    case DType::Float64:
      return "<f8";
    case DType::BFloat16:
      return "<V2";
    case DType::Int8:
      return "|i1";
    case DType::Int16:
      return "<i2";
    case DType::Int32:
      return "<i4";
    case DType::Int64:
      return "<i8";
    case DType::UInt8:
      return "|u1";
    case DType::UInt16:
      return "<u2";
    case DType::UInt32:
      return "<u4";
    case DType::UInt64:
      return "<u8";
    case DType::Bool:
      return "|b1";
    default:
      throw InvalidArgument(".npy has no elements of type " + std::string(dtype_name(dtype)));
  }
}

std::string header_of(const std::string& descr, std::span<const std::int64_t> shape) {
  std::string dict = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", descr,
                                 fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  constexpr std::size_t kBefore = 10, kAlign = 64;  // the elements begin at a multiple of kAlign
  dict.append((kAlign - (kBefore + dict.size() + 1) % kAlign) % kAlign, ' ');
  dict.push_back('\n');
  std::string header(kMagic);
  header += std::string("\x01\0", 2);
  const auto size = static_cast<std::uint16_t>(dict.size());
  header.append(reinterpret_cast<const char*>(&size), sizeof(size));
  return header + dict;
}

}  // namespace

NpyLayout npy_layout(std::span<const std::byte> front, const std::string& source) {
  return HeaderParser(front, source).layout();
}

NpyArray parse_npy(std::span<const std::byte> bytes, const std::string& source) {
  return HeaderParser(bytes, source).parse();
}

std::string npy_header(DType dtype, std::span<const std::int64_t> shape) {
  return header_of(descr_of(dtype), shape);
}

std::string format_npy(DType dtype, std::span<const std::int64_t> shape, std::span<const std::byte> data) {
  if (dtype != DType::String)
    return npy_header(dtype, shape).append(reinterpret_cast<const char*>(data.data()), data.size());
  std::size_t count = 1;
  for (const std::int64_t dim : shape) count *= static_cast<std::size_t>(dim);
  std::vector<std::int64_t> offsets(count + 1);
  std::memcpy(offsets.data(), data.data(), offsets.size() * sizeof(std::int64_t));
  const char* text = reinterpret_cast<const char*>(data.data()) + offsets.size() * sizeof(std::int64_t);
  std::int64_t width = 1;
  for (std::size_t i = 0; i < count; ++i) width = std::max(width, offsets[i + 1] - offsets[i]);
  std::string out = header_of("|S" + std::to_string(width), shape);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string_view one(text + offsets[i], static_cast<std::size_t>(offsets[i + 1] - offsets[i]));
    if (one.ends_with('\0'))
      throw InvalidArgument("a string that ends in a zero byte does not fit into .npy");
    out.append(one);
    out.append(static_cast<std::size_t>(width) - one.size(), '\0');
  }
  return out;
}

}  // namespace braid
