#include "worker/job/homes.h"

#include "proto/job.pb.h"

namespace braid::worker {

bool has_homes_of_rows(const proto::Job& job, int world) {
  const proto::Strategy& strategy = job.strategy();
  const bool is_bsp = strategy.consistency() == proto::Strategy::BSP ||
                      (strategy.consistency() == proto::Strategy::SSP && strategy.staleness() == 0);
  // Of a checkpoint by the clock only the leader knows.
  const bool saves_by_clock = !job.checkpoint().directory().empty() && job.checkpoint().every_seconds() > 0;
  return world > 1 && strategy.kind() == proto::Strategy::PS_ALLREDUCE && strategy.ps().cache_rows() > 0 &&
         is_bsp && strategy.backend() != proto::Strategy::MPI && !strategy.has_elastic() && !saves_by_clock;
}

}  // namespace braid::worker
