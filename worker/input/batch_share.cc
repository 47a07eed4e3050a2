#include "worker/input/batch_share.h"

#include "proto/job.pb.h"

namespace braid::worker {

BatchShare batch_share(const proto::Job& job, int rank, int world) {
  const std::int64_t rows = job.input().global_batch_size();
  check_global_batch(rows, world);
  return {rows, rank, world};
}

}  // namespace braid::worker
