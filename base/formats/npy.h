// .npy arrays (NumPy Enhancement Proposal 1, versions 1 to 3) in memory: element type, shape, and elements in
// row-major order and this machine's byte order, whatever the file has. Strings are laid out as in
// braid::Tensor: int64 offsets[n + 1], then the bytes. Thread rule: pure functions.
//
//   read      f2 f4 f8, i1 i2 i4 i8, u1 u2 u4 u8, b1, S and U as String, V2 as BFloat16; either byte order,
//             either element order
//   not read  objects (they are Python pickles), complex numbers, structures, dates
//   written   the same kinds; String as S, BFloat16 as V2
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace braid {

struct NpyArray {
  DType dtype = DType::Invalid;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> data;
};

/// `source` says in errors where the bytes are from. Throws: DataLoss (not .npy, truncated: byte, what),
/// InvalidArgument (a kind that is not read).
NpyArray parse_npy(std::span<const std::byte> bytes, const std::string& source);

/// Where the elements of an array lie, of one that is too large to be in memory.
struct NpyLayout {
  DType dtype = DType::Invalid;
  std::vector<std::int64_t> shape;
  bool as_it_lies = false;  // row-major, and in this machine's byte order
  std::size_t data_at = 0;
};
/// From the first bytes of one, which have its header (64 KiB of them do). Throws: as parse_npy().
NpyLayout npy_layout(std::span<const std::byte> front, const std::string& source);

/// The bytes in front of the elements of an array that is written as it is: little endian, row-major. Throws:
/// InvalidArgument (a type that .npy has no kind for; String, which format_npy takes).
std::string npy_header(DType dtype, std::span<const std::int64_t> shape);

/// Header and elements. `data` as in NpyArray. Throws: InvalidArgument (a string that ends in a zero byte,
/// which S cuts off).
std::string format_npy(DType dtype, std::span<const std::int64_t> shape, std::span<const std::byte> data);

}  // namespace braid
