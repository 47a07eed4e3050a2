#include "engine/input/formats/idx_array.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "engine/input/formats/readers.h"

namespace braid {
namespace {

DType type_of(unsigned char code) {
  switch (code) {
    case 0x08:
      return DType::UInt8;
    case 0x09:
      return DType::Int8;
    case 0x0B:
      return DType::Int16;
    case 0x0C:
      return DType::Int32;
    case 0x0D:
      return DType::Float32;
    case 0x0E:
      return DType::Float64;
    default:
      return DType::Invalid;
  }
}

template <class T>
T big_endian(const char* bytes) {
  std::array<char, sizeof(T)> turned;
  std::reverse_copy(bytes, bytes + sizeof(T), turned.begin());
  return std::bit_cast<T>(turned);
}

}  // namespace

std::int64_t IdxArray::elements() const {
  std::int64_t total = 1;
  for (const std::int64_t dim : dims) total *= dim;
  return total;
}

void IdxArray::add_item(std::int64_t index, std::string_view name, FeatureSet& record) const {
  const std::int64_t count = dims[0] == 0 ? 0 : elements() / dims[0];
  const std::size_t size = dtype_size(dtype);
  std::vector<std::int64_t> ints;
  std::vector<float> floats;
  for (std::int64_t i = 0; i < count; ++i) {
    const char* at = bytes.data() + offset + static_cast<std::size_t>(index * count + i) * size;
    switch (dtype) {
      case DType::UInt8:
        ints.push_back(static_cast<unsigned char>(*at));
        break;
      case DType::Int8:
        ints.push_back(big_endian<std::int8_t>(at));
        break;
      case DType::Int16:
        ints.push_back(big_endian<std::int16_t>(at));
        break;
      case DType::Int32:
        ints.push_back(big_endian<std::int32_t>(at));
        break;
      case DType::Float32:
        floats.push_back(big_endian<float>(at));
        break;
      default:
        floats.push_back(static_cast<float>(big_endian<double>(at)));
    }
  }
  if (is_floating(dtype))
    record.add(name, std::span<const float>(floats));
  else
    record.add(name, std::span<const std::int64_t>(ints));
}

IdxArray read_idx_array(const std::filesystem::path& file) {
  IdxArray array;
  array.bytes = read_text_file(file);
  const auto fail = [&](const std::string& what) { throw DataLoss("'" + file.string() + "': " + what); };
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(array.bytes[i]); };
  if (array.bytes.size() < 4)
    fail(std::to_string(array.bytes.size()) + " bytes are too few for an IDX header");
  array.dtype = type_of(byte(2));
  if (byte(0) != 0 || byte(1) != 0 || array.dtype == DType::Invalid || byte(3) == 0)
    fail("not an IDX file (byte 0: wrong magic number)");
  const std::size_t rank = byte(3);
  array.offset = 4 + 4 * rank;
  if (array.bytes.size() < array.offset)
    fail(std::to_string(array.bytes.size()) + " bytes are too few for an IDX header of rank " +
         std::to_string(rank));
  const std::uint64_t have = (array.bytes.size() - array.offset) / dtype_size(array.dtype);
  std::uint64_t total = 1;
  for (std::size_t d = 0; d < rank; ++d) {
    array.dims.push_back(big_endian<std::uint32_t>(array.bytes.data() + 4 + 4 * d));
    if (__builtin_mul_overflow(total, static_cast<std::uint64_t>(array.dims.back()), &total))
      fail("byte " + std::to_string(4 + 4 * d) + ": more elements than a machine can hold");
  }
  if (have != total || (array.bytes.size() - array.offset) % dtype_size(array.dtype) != 0)
    fail("the header promises " + std::to_string(total) + " elements, the file has " + std::to_string(have));
  // Four billion items of nothing take no byte of a file, and minutes to read.
  if (total == 0 && array.dims[0] > 0)
    fail("the header promises " + std::to_string(array.dims[0]) + " items of no elements");
  return array;
}

}  // namespace braid
