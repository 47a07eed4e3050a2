// Who takes part in a job and who this process is. One ClusterSpec from whatever started the process: flags,
// TF_CONFIG, the rank variables of mpirun, srun, torchrun or Hydra, or nothing at all, which means a single
// machine.
//
// Numbering is TensorFlow's: the chief, or worker 0 where no chief is listed, leads; the rank of a worker is
// its index plus the number of chiefs; servers and the evaluator stand outside the ranks. An address is the
// gRPC port of a task; data and HTTP ports are published when a task registers. Rank variables carry no
// addresses: they are empty in the spec then, and the caller exchanges them (addresses_known()). Thread rule:
// a value.
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/environment.h"

namespace braid::launch {

/// In the order in which ranks of mpirun become tasks.
enum class TaskType { Chief, Worker, Ps, Evaluator };

/// TF_CONFIG's name of the job: "chief", "worker", "ps", "evaluator".
std::string_view job_name(TaskType type);
/// The inverse; also takes "master" for the chief.
std::optional<TaskType> task_type_from_name(std::string_view name);

struct Task {
  TaskType type = TaskType::Worker;
  int index = 0;
  friend auto operator<=>(const Task&, const Task&) = default;
};

/// "worker 1"; as in log lines.
std::string task_name(const Task& task);

struct ClusterSpec {
  /// Index -> "host:port". Indices may have gaps when the spec is partial.
  using Job = std::map<int, std::string>;

  Job chief;
  Job worker;
  Job ps;
  Job evaluator;

  Task task;
  /// Set for the chief and workers.
  std::optional<int> rank;
  /// The listed chief and workers. In a partial spec there may be more of them, so rank may be >= world.
  int world = 1;
  /// Among the tasks of this host, to choose a device by.
  int local_rank = 0;
  int local_world = 1;
  /// The spec lists only a part of the cluster, as jobs with dynamic workers do. Collectives cannot be made
  /// from it.
  bool partial = false;
  /// It comes to a running job by --join, which lists nobody but the leader.
  bool joins = false;
  /// A launcher that makes ranks (mpirun, srun, torchrun) started the process: all write to its output.
  bool shared_output = false;
  /// Where the spec is from, for logs: "TF_CONFIG", "Open MPI: OMPI_COMM_WORLD_RANK=1 of 4".
  std::string source;

  const Job& job(TaskType type) const;
  Job& job(TaskType type);
  /// All listed tasks: chief, workers, servers, evaluator, each by index. Under mpirun element r is rank r's
  /// task.
  std::vector<Task> tasks() const;
  /// Absent when the task is not listed; empty when its address is not known yet.
  std::optional<std::string> address(const Task& task) const;
  /// Whether every listed task has an address.
  bool addresses_known() const;
  /// The task that leads: the chief, else worker 0.
  Task leader() const;
  bool is_leader() const { return task == leader(); }
  /// One worker and no server: nothing to talk to.
  bool single_machine() const;
  /// One line: who this is, the ranks, the tasks of each job, and the source.
  std::string describe() const;
};

/// What the command line says about the cluster.
struct LaunchFlags {
  /// "chief=h:1;worker=h:2,h:3;ps=h:4", or the JSON object that TF_CONFIG has under "cluster".
  std::string cluster;
  /// "worker:1"
  std::string task;
  /// Of the ranks that a launcher made, the last `ps_ranks` become servers. Only without a listed cluster.
  int ps_ranks = 0;
  /// "host:port" of the leader of an elastic job, which is joined as --task says, else as worker 1.
  std::string join = {};
  /// Port of rank 0 under srun and torchrun, which tell its host alone; 0 chooses (see rank_variables.h).
  int port = 0;
};

/// The first that is given counts: --join or BRAID_JOIN, with no other list; flags; TF_CONFIG; the variables
/// of torchrun, Open MPI, Slurm, bare RANK/WORLD_SIZE, PMI. A cluster listed without a task takes the task
/// from the rank: rank r is the r-th of tasks(). Ranks without a cluster are workers 0..n-1-ps_ranks and then
/// servers. Throws: InvalidArgument, with JSON offset, JSON path, flag or variable, and the reason.
ClusterSpec resolve_cluster(const Environment& environment, const LaunchFlags& flags);

}  // namespace braid::launch
