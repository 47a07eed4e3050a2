// resolve_cluster: which source counts, and how a listed cluster and a launcher's rank make one spec.
#include <fmt/core.h>
#include <unistd.h>

#include <array>

#include "base/error.h"
#include "launch/cluster_spec.h"
#include "launch/listed_cluster.h"
#include "launch/rank_variables.h"
#include "launch/tf_config.h"

namespace braid::launch {
namespace {

std::optional<RankInfo> read_ranks(const Environment& environment, int port) {
  if (started_by_torchrun(environment)) return read_torchrun(environment, port);
  if (auto info = read_open_mpi(environment)) return info;
  if (auto info = read_slurm(environment, port)) return info;
  if (auto info = read_torchrun(environment, port)) return info;
  return read_pmi(environment);
}

std::string_view host_of(std::string_view address) { return address.substr(0, address.rfind(':')); }

/// Without a launcher that tells them, the local ranks follow from the hosts of the addresses.
void count_local_ranks(ClusterSpec& spec) {
  const std::string own = spec.address(spec.task).value_or("");
  if (own.empty()) return;
  spec.local_rank = 0;
  spec.local_world = 0;
  for (const Task& task : spec.tasks()) {
    const bool ranked = task.type == TaskType::Chief || task.type == TaskType::Worker;
    if (ranked != spec.rank.has_value() || host_of(*spec.address(task)) != host_of(own)) continue;
    ++spec.local_world;
    if (task < spec.task) ++spec.local_rank;
  }
}

void number(ClusterSpec& spec, const std::optional<RankInfo>& ranks) {
  const int chiefs = static_cast<int>(spec.chief.size());
  if (spec.task.type == TaskType::Chief) spec.rank = 0;
  if (spec.task.type == TaskType::Worker) spec.rank = spec.task.index + chiefs;
  spec.world = chiefs + static_cast<int>(spec.worker.size());
  if (ranks) {
    spec.local_rank = ranks->local_rank;
    spec.local_world = ranks->local_size;
  } else {
    count_local_ranks(spec);
  }
}

ClusterSpec spec_of(const ListedCluster& listed) {
  ClusterSpec spec;
  for (const auto& [type, job] : listed.jobs) spec.job(type) = job;
  spec.partial = listed.partial;
  spec.source = listed.source;
  return spec;
}

/// Rank r is the r-th of the listed tasks.
Task task_of_rank(const ClusterSpec& spec, const RankInfo& ranks) {
  const std::vector<Task> tasks = spec.tasks();
  if (static_cast<int>(tasks.size()) != ranks.size)
    throw InvalidArgument(fmt::format("[launch] {} lists {} tasks, but there are {} processes ({})",
                                      spec.source, tasks.size(), ranks.size, ranks.source));
  return tasks[static_cast<std::size_t>(ranks.rank)];
}

ClusterSpec from_list(const ListedCluster& listed, const Environment& environment, const LaunchFlags& flags) {
  if (flags.ps_ranks > 0)
    throw InvalidArgument(fmt::format("[launch] --ps-ranks: {} lists the servers already", listed.source));
  ClusterSpec spec = spec_of(listed);
  std::optional<RankInfo> ranks;
  if (listed.task) {
    spec.task = *listed.task;
    // Every process of an mpirun sees one TF_CONFIG: unless each was given its own, they would all be the
    // same task.
    ranks = read_open_mpi(environment);
    if (ranks && ranks->size == 1) ranks.reset();
    const Task by_rank = ranks ? task_of_rank(spec, *ranks) : spec.task;
    if (by_rank != spec.task)
      throw InvalidArgument(
          fmt::format("[launch] {} says that this is {}, but {} is {} in its order; leave \"task\" out",
                      spec.source, task_name(spec.task), ranks->source, task_name(by_rank)));
  } else if ((ranks = read_ranks(environment, flags.port))) {
    spec.task = task_of_rank(spec, *ranks);
    spec.source += fmt::format(" and {}", ranks->source);
  } else if (spec.tasks().size() == 1) {
    spec.task = spec.tasks().front();
  } else {
    throw InvalidArgument(
        fmt::format("[launch] {} lists {} tasks and not which of them this is; give \"task\" (or --task), or "
                    "start it under mpirun",
                    spec.source, spec.tasks().size()));
  }
  // Where only a part is listed, a task may be missing from its own list.
  if (spec.partial) spec.job(spec.task.type).try_emplace(spec.task.index);
  number(spec, ranks);
  spec.shared_output = ranks.has_value();
  return spec;
}

ClusterSpec from_ranks(const RankInfo& ranks, int ps_ranks) {
  const int workers = ranks.size - ps_ranks;
  if (workers < 1)
    throw InvalidArgument(fmt::format(
        "[launch] --ps-ranks {}: none of the {} processes is left to be a worker", ps_ranks, ranks.size));
  ClusterSpec spec;
  for (int i = 0; i < workers; ++i) spec.worker[i];
  for (int i = 0; i < ps_ranks; ++i) spec.ps[i];
  spec.worker[0] = ranks.leader_address;
  spec.source = ranks.source;
  spec.task = task_of_rank(spec, ranks);
  number(spec, ranks);
  spec.shared_output = ranks.size > 1;
  return spec;
}

/// What flags and TF_CONFIG list; --task beats TF_CONFIG's task.
ListedCluster read_list(const Environment& environment, const LaunchFlags& flags) {
  const std::string* tf_config = find_variable(environment, "TF_CONFIG");
  ListedCluster listed;
  if (!flags.cluster.empty()) {
    listed = parse_cluster_flag(flags.cluster);
  } else if (tf_config != nullptr) {
    listed = parse_tf_config(*tf_config);
  }
  std::string where = "TF_CONFIG $.task";
  if (!flags.task.empty()) {
    where = "--task";
    listed.task = parse_task_flag(flags.task);
    if (!listed.empty()) check_membership(listed, *listed.task, where);
  }
  if (listed.empty() && !listed.partial && listed.task && *listed.task != Task{} &&
      *listed.task != Task{TaskType::Chief, 0})
    throw InvalidArgument(
        fmt::format("[launch] {}: {}, but no cluster is given", where, task_name(*listed.task)));
  return listed;
}

/// A worker that nobody lists, and the leader that it goes to.
ClusterSpec from_join(const std::string& leader, const LaunchFlags& flags) {
  ClusterSpec spec;
  spec.source = "--join " + leader;
  const auto colon = leader.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == leader.size())
    throw InvalidArgument(fmt::format("[launch] --join '{}': expected host:port of the leader", leader));
  spec.task = flags.task.empty() ? Task{TaskType::Worker, 1} : parse_task_flag(flags.task);
  if (spec.task.type != TaskType::Worker || spec.task.index == 0)
    throw InvalidArgument(
        fmt::format("[launch] --join: --task must be a worker behind worker 0, which leads, and is {}",
                    task_name(spec.task)));
  spec.worker[0] = leader;
  // Where others find it is told in the job; here its host counts.
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const bool is_here = leader.starts_with("127.") || leader.starts_with("localhost:");
  spec.worker[spec.task.index] = (is_here ? "127.0.0.1" : std::string(host.data())) + ":0";
  spec.rank = spec.task.index;
  spec.world = 2;
  spec.joins = true;
  return spec;
}

}  // namespace

ClusterSpec resolve_cluster(const Environment& environment, const LaunchFlags& flags) {
  if (flags.ps_ranks < 0)
    throw InvalidArgument(fmt::format("[launch] --ps-ranks: {} is negative", flags.ps_ranks));
  const std::string* join = find_variable(environment, "BRAID_JOIN");
  const std::string leader = !flags.join.empty() || join == nullptr ? flags.join : *join;
  if (!leader.empty()) {
    if (!flags.cluster.empty())
      throw InvalidArgument("[launch] --join and --cluster are both given: a listed worker joins by itself");
    return from_join(leader, flags);
  }
  const ListedCluster listed = read_list(environment, flags);
  if (!listed.empty() || listed.partial) return from_list(listed, environment, flags);
  if (const auto ranks = read_ranks(environment, flags.port)) return from_ranks(*ranks, flags.ps_ranks);
  if (flags.ps_ranks > 0)
    throw InvalidArgument(
        "[launch] --ps-ranks needs the ranks of mpirun, srun or torchrun; none of their variables is set");
  RankInfo alone;
  alone.source = "defaults (no cluster spec)";
  return from_ranks(alone, 0);
}

}  // namespace braid::launch
