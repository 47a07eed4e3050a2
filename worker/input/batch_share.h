// How the rows of a step are shared by the workers: contiguous parts that differ by one row at most. Every
// row counts the same: where parts differ, a worker's gradient and loss are weighted by its share before they
// are averaged over the workers. Thread rule: a value.
#pragma once

#include <cstdint>

#include "engine/input/schema/table.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

struct BatchShare {
  std::int64_t global_rows = 1;
  int rank = 0;
  int world = 1;

  std::int64_t rows() const { return rows_of(rank); }
  std::int64_t rows_of(int worker) const { return row_part(global_rows, worker, world).rows; }
  bool even() const { return global_rows % world == 0; }
  /// What a mean over this worker's rows is multiplied by, so that the mean over the workers is the one over
  /// all rows. 1 for even parts, and for no others.
  float weight() const {
    return static_cast<float>(static_cast<double>(rows()) * world / static_cast<double>(global_rows));
  }
};

/// Who a worker is among those that share the rows of a step: under PIPELINE and TENSOR those of a group read
/// the same rows.
struct RowReader {
  int rank = 0;
  int world = 1;
};
/// Throws: as mesh_of().
RowReader row_reader(const proto::Job& job, int rank, int world);

/// Throws: InvalidArgument when there are fewer rows than workers.
BatchShare batch_share(const proto::Job& job, int rank, int world);

}  // namespace braid::worker
