#include "worker/input/batch_share.h"

#include "proto/job.pb.h"
#include "worker/job/mesh.h"

namespace braid::worker {

RowReader row_reader(const proto::Job& job, int rank, int world) {
  if (job.strategy().kind() == proto::Strategy::EXPERTS) return {rank, world};
  const Mesh mesh = mesh_of(job, world);
  return {mesh.group_of(rank), mesh.data};
}

BatchShare batch_share(const proto::Job& job, int rank, int world) {
  const std::int64_t rows = job.input().global_batch_size();
  const RowReader reader = row_reader(job, rank, world);
  check_global_batch(rows, reader.world);
  return {rows, reader.rank, reader.world};
}

}  // namespace braid::worker
