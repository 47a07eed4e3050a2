// Rows that are updated by others through indices which may repeat: sums of gradients' rows, segment
// operations, scatters. Updates of one row are joined in the order of their positions, in chunks whose
// borders depend on their number only, so the bits do not depend on how blocks run.
//
//   row[index] = write(row[index], reduce(updates with that index))
//
// Rows that no index names stay as they are. Stream: everything is enqueued.
#pragma once

#include "base/dtype.h"
#include "engine/ir/op.h"
#include "engine/ops/common/cuda/index_groups.h"

namespace braid::cuda {

/// How the updates of one row are joined.
enum class RowReduce { Sum, Prod, Min, Max, Last };
/// What is done with the row; Mean and RootMean divide by the number of updates, or its root, before they
/// set.
enum class RowWrite { Set, Mean, RootMean, Add, Sub, Mul, Div, Min, Max };

struct RowUpdateSpec {
  DType dtype;           // float32, float64, int32 or int64
  std::int64_t updates;  // their number
  std::int64_t rows;     // that there are
  std::int64_t width;    // elements of a row
  RowReduce reduce = RowReduce::Sum;
  RowWrite write = RowWrite::Set;
  bool sorted = false;  // the indices never fall
};

/// Where the updates are; device pointers.
struct RowValues {
  const void* data;
  std::int64_t row_stride, column_stride;  // elements; 0 and 0 for one scalar
  const void* row_of = nullptr;            // row of `data` that an update is; null: its position
  DType row_type = DType::Int64;           // of row_of: int32 or int64
  const void* scale = nullptr;             // [rows of data], of the values' type; null: 1
  bool scales_updates = false;             // scale is [updates]: each has its own
};

class RowUpdate {
 public:
  /// Throws: InvalidArgument for 2^31 updates or rows, or more.
  RowUpdate(const PrepareContext& c, const RowUpdateSpec& spec);

  std::size_t scratch_bytes() const { return sort_.scratch_bytes() + 2 * partial_bytes_; }

  /// Where the entry of each update is put (index_groups.h), before apply().
  std::uint64_t* entries(void* scratch) const { return sort_.unsorted(scratch); }
  /// Makes the entries of `indices`. One out of range is reported and left out; so are negative ones, without
  /// a report, where `allow_negative`.
  void index(const KernelArgs& args, void* scratch, const void* indices, DType index_type,
             bool allow_negative) const;
  /// Updates `target` [rows, width] by the entries.
  void apply(void* scratch, StreamRef stream, const RowValues& values, void* target) const;

 private:
  RowUpdateSpec spec_;
  IndexSort sort_;
  std::int64_t chunk_;  // updates of a chunk
  std::int64_t chunks_;
  std::size_t partial_bytes_;
};

/// float32, float64, int32, int64.
bool is_row_type(DType dtype);

}  // namespace braid::cuda
