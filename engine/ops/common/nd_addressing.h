// Slices of a tensor that vectors of indices [..., k] address: element i of a vector is a place on axis i.
// What GatherNd, ScatterNd and the scatters into variables share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/ir/op.h"

namespace braid {

/// The leading axes that a vector of indices addresses, as strides of rows.
struct NdAddressing {
  std::vector<std::int64_t> dims;
  std::vector<std::int64_t> strides;
  std::int64_t rows = 1;   // product of dims
  std::int64_t width = 1;  // elements of a slice
  std::int64_t count = 1;  // vectors of indices

  NdAddressing(const Shape& whole, const Shape& indices) {
    const int depth = static_cast<int>(indices[indices.rank() - 1]);
    for (int i = 0; i < indices.rank() - 1; ++i) count *= indices[i];
    for (int i = 0; i < depth; ++i) dims.push_back(whole[i]);
    for (int i = depth; i < whole.rank(); ++i) width *= whole[i];
    strides.resize(dims.size());
    for (std::size_t i = dims.size(); i-- > 0; rows *= dims[i]) strides[i] = rows;
  }

  /// The row that vector k addresses.
  template <class I>
  std::int64_t row(const std::string& place, const I* indices, std::int64_t k) const {
    const I* at = indices + k * static_cast<std::int64_t>(dims.size());
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (at[i] < 0 || at[i] >= dims[i])
        throw InvalidArgument(place + ": indices[" + std::to_string(k) + ", " + std::to_string(i) + "] = " +
                              std::to_string(at[i]) + " is not in [0, " + std::to_string(dims[i]) + ")");
      sum += at[i] * strides[i];
    }
    return sum;
  }
};

/// indices.shape[:-1] + whole.shape[k:], as far as it is known.
inline Shape nd_slices_shape(const InferContext& c, const Shape& whole, const Shape& indices) {
  if (!whole.has_rank() || !indices.has_rank()) return Shape::unknown_rank();
  if (indices.rank() == 0) c.fail("indices must have rank >= 1, got []");
  const std::int64_t depth = indices[indices.rank() - 1];
  if (depth == Shape::kUnknown) return Shape::unknown_rank();
  if (depth > whole.rank())
    c.fail("indices of " + std::to_string(depth) + " numbers do not address shape " + whole.to_string());
  std::vector<std::int64_t> dims(indices.dims().begin(), indices.dims().end() - 1);
  dims.insert(dims.end(), whole.dims().begin() + depth, whole.dims().end());
  return Shape(std::move(dims));
}

}  // namespace braid
