// IDX: big-endian magic 0x00 0x00 <type> <rank>, then one 32-bit size a dimension, then the elements. Format:
// LeCun, Cortes, Burges, "The MNIST database". Private to engine/input. Thread rule: a value.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "engine/input/formats/example.h"

namespace braid {

struct IdxArray {
  DType dtype = DType::UInt8;  // also Int8, Int16, Int32, Float32, Float64
  std::vector<std::int64_t> dims;
  std::string bytes;       // the whole file, elements as in it: big-endian
  std::size_t offset = 0;  // of the first element

  std::int64_t elements() const;
  /// The elements of item `index` along the first axis, as int64s or floats under `name`.
  void add_item(std::int64_t index, std::string_view name, FeatureSet& record) const;
};

/// Throws: InvalidArgument (cannot open), DataLoss (not IDX; sizes that do not fit: file, byte).
IdxArray read_idx_array(const std::filesystem::path& file);

}  // namespace braid
