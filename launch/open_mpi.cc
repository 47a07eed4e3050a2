// Open MPI 4 and 5 (mpirun): tells ranks, no hosts.
#include "launch/rank_variables.h"

namespace braid::launch {

std::optional<RankInfo> read_open_mpi(const Environment& environment) {
  return read_family({"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                      "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                     environment);
}

}  // namespace braid::launch
