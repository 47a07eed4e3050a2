// The rank variables of process launchers, one source file a launcher. A family is taken whole or not at all:
// half of a rank and size pair is an error, never completed from another family.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "launch/environment.h"

namespace braid::launch {

struct RankInfo {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  /// For logs, e.g. "Open MPI: OMPI_COMM_WORLD_RANK=1 of 4".
  std::string source;
  /// "host:port" of rank 0 where the launcher tells its host, else empty.
  std::string leader_address;
};

/// Names of one family's variables; an empty one does not exist.
struct RankFamily {
  std::string_view launcher;
  std::string_view rank;
  std::string_view size;
  std::string_view local_rank;
  std::string_view local_size;
};

/// Reads a family's variables. Absent when neither rank nor size is set.
/// Throws: InvalidArgument when one of the pair is missing, a value is no count, or the rank is not below the
/// size.
std::optional<RankInfo> read_family(const RankFamily& family, const Environment& environment);

std::optional<RankInfo> read_open_mpi(const Environment& environment);

/// Only inside a job step. The shell of sbatch and salloc has SLURM_PROCID=0 and SLURM_NTASKS=N although
/// nobody started N tasks, so SLURM_STEP_NUM_TASKS, which srun sets, decides. The leader is on the first node
/// of the step, at `port`, or at 20000 + job id modulo 10000 when that is 0.
std::optional<RankInfo> read_slurm(const Environment& environment, int port);

/// RANK and WORLD_SIZE. The leader is at MASTER_ADDR, at `port`, or at MASTER_PORT when that is 0; plus one
/// where torchrun's agent itself listens on MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE=True).
std::optional<RankInfo> read_torchrun(const Environment& environment, int port);
/// Whether torchrun itself started the process; it is then the innermost launcher, inside srun or mpirun.
bool started_by_torchrun(const Environment& environment);

/// Hydra's: MPICH, Intel MPI.
std::optional<RankInfo> read_pmi(const Environment& environment);

/// Tasks of the `node`-th node in a list of counts: "2(x3),1" is 2 of nodes 0 to 2 and 1 of node 3. 0 where
/// it does not say.
int slurm_tasks_of_node(std::string_view counts, int node);

/// The first node of a Slurm node list: "gpu[03-07,9],cpu1" -> "gpu03". Empty for an empty list.
std::string first_slurm_node(std::string_view node_list);

}  // namespace braid::launch
