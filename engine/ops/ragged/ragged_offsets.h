// Ragged values on the CPU: values [n, row...] lie side by side, offsets [B + 1] (int32 or int64) cut them:
// row b of the batch has those of [offsets[b], offsets[b + 1]). offsets[0] is 0. Values from offsets[B] on
// are room for other batches: nothing reads them, outputs and gradients have zeros there. Thread rule: pure
// functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "engine/ir/op.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {

/// Where the values of each row lie. A width in the place of offsets: each row has as many.
class RaggedOffsets {
 public:
  RaggedOffsets() = default;
  RaggedOffsets(const void* offsets, DType dtype, std::int64_t rows)
      : offsets_(offsets), wide_(dtype == DType::Int64), rows_(rows) {}
  static RaggedOffsets of_width(std::int64_t width, std::int64_t rows) {
    RaggedOffsets all(nullptr, DType::Int64, rows);
    all.width_ = width;
    return all;
  }

  std::int64_t rows() const { return rows_; }
  std::int64_t begin(std::int64_t row) const {
    if (!offsets_) return row * width_;
    return wide_ ? static_cast<const std::int64_t*>(offsets_)[row]
                 : static_cast<const std::int32_t*>(offsets_)[row];
  }
  std::int64_t end(std::int64_t row) const { return begin(row + 1); }
  std::int64_t length(std::int64_t row) const { return end(row) - begin(row); }
  /// How many values belong to a row.
  std::int64_t used() const { return begin(rows_); }
  std::int64_t longest() const {
    std::int64_t most = 0;
    for (std::int64_t b = 0; b < rows_; ++b) most = std::max(most, length(b));
    return most;
  }

  /// Throws: InvalidArgument "<place>: offsets ..." unless they rise from 0 and stay within `values`.
  void check(const std::string& place, std::int64_t values) const {
    if (begin(0) != 0)
      throw InvalidArgument(place + ": offsets begin with " + std::to_string(begin(0)) + ", not with 0");
    for (std::int64_t b = 0; b < rows_; ++b)
      if (end(b) < begin(b) || end(b) > values)
        throw InvalidArgument(place + ": offsets[" + std::to_string(b + 1) + "] = " + std::to_string(end(b)) +
                              " falls, or is above the " + std::to_string(values) + " values");
  }

 private:
  const void* offsets_ = nullptr;
  bool wide_ = true;
  std::int64_t rows_ = 0, width_ = 0;
};

/// Those of input i of a node.
class OffsetsInput {
 public:
  OffsetsInput(const PrepareContext& c, int i)
      : input_(i),
        dtype_(c.inputs[static_cast<std::size_t>(i)].dtype),
        rows_(c.inputs[static_cast<std::size_t>(i)].shape[0] - 1),
        place_(place_of(c.node)) {}
  std::int64_t rows() const { return rows_; }
  const std::string& place() const { return place_; }
  /// Throws: InvalidArgument as check() says.
  RaggedOffsets checked(const KernelArgs& args, std::int64_t values) const {
    const RaggedOffsets offsets(args.inputs[input_], dtype_, rows_);
    offsets.check(place_, values);
    return offsets;
  }

 private:
  int input_;
  DType dtype_;
  std::int64_t rows_;
  std::string place_;
};

/// Checks that input i is offsets. Returns the rows of the batch, or unknown.
inline std::int64_t check_offsets_input(const InferContext& c, int i) {
  require_index_dtype(c, i);
  c.require_rank(i, 1);
  const Shape& shape = c.shape(i);
  if (!shape.has_rank() || shape[0] < 0) return Shape::kUnknown;
  if (shape[0] < 1) c.fail("offsets must have an element more than the batch has rows, got none");
  return shape[0] - 1;
}

/// The first dimension, or unknown.
inline std::int64_t rows_of(const Shape& shape) { return shape.has_rank() ? shape[0] : Shape::kUnknown; }

/// `shape` with another first dimension.
inline Shape with_rows(const Shape& shape, std::int64_t rows) {
  if (!shape.has_rank()) return shape;
  std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().end());
  dims[0] = rows;
  return Shape(std::move(dims));
}

/// Elements of a row of `shape`. REQUIRES: static, of rank 1 or more.
inline std::int64_t row_elements(const Shape& shape) {
  std::int64_t n = 1;
  for (int axis = 1; axis < shape.rank(); ++axis) n *= shape[axis];
  return n;
}

inline std::size_t row_bytes(const OutputInfo& info) {
  return static_cast<std::size_t>(row_elements(info.shape)) * dtype_size(info.dtype);
}

}  // namespace braid
