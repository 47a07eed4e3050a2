#include "worker/batch_share.h"

#include <fmt/format.h>

#include "base/error.h"
#include "proto/job.pb.h"

namespace braid::worker {

BatchShare batch_share(const proto::Job& job, int rank, int world) {
  const std::int64_t rows = job.input().global_batch_size();
  if (rows < world)
    throw InvalidArgument(fmt::format(
        "input.global_batch_size is {}, fewer than one row for each of the {} workers", rows, world));
  return {rows, rank, world};
}

}  // namespace braid::worker
