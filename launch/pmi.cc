// PMI as Hydra sets it (MPICH, Intel MPI): tells ranks, no hosts.
#include "launch/rank_variables.h"

namespace braid::launch {

std::optional<RankInfo> read_pmi(const Environment& environment) {
  return read_family({"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}, environment);
}

}  // namespace braid::launch
