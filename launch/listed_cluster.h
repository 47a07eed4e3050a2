// A cluster as somebody wrote it down, in flags or in TF_CONFIG: checked and normalised, before it is known
// which process reads it. Every error names the place of the text that is wrong.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "launch/cluster_spec.h"

namespace braid::launch {

struct ListedCluster {
  std::map<TaskType, ClusterSpec::Job> jobs;
  /// See ClusterSpec::partial.
  bool partial = false;
  std::optional<Task> task;
  std::string source;

  bool empty() const { return jobs.empty(); }
  bool lists(const Task& task) const;
};

/// Collects tasks and refuses what contradicts itself. `where` is the place of an entry: "TF_CONFIG
/// $.cluster.worker[1]".
class ListedClusterBuilder {
 public:
  explicit ListedClusterBuilder(std::string source) { cluster_.source = std::move(source); }

  /// The job of that name. Throws: InvalidArgument for an unknown name, or for chief beside master.
  TaskType job(std::string_view name, std::string_view where);
  /// Throws: InvalidArgument when the address is not host:port, is taken, or the chief or evaluator is not
  /// the only one.
  void add(const Task& task, std::string_view address, const std::string& where);
  void set_task(const Task& task) { cluster_.task = task; }
  void set_partial() { cluster_.partial = true; }
  /// Throws: InvalidArgument when there are servers and nobody who uses them.
  ListedCluster finish(std::string_view where);

 private:
  ListedCluster cluster_;
  std::map<TaskType, std::string> job_names_;
  std::map<std::string, std::string, std::less<>> place_of_address_;
};

/// The address in the one way to write it, to compare it by. Throws: InvalidArgument unless `address` is
/// "host:port" or "[ipv6]:port" with a port in 1..65535.
std::string check_address(std::string_view address, std::string_view where);

/// Checks that `task` may take part in `cluster`: listed, or the evaluator, which need not be, or anybody in
/// a partial one.
void check_membership(const ListedCluster& cluster, const Task& task, std::string_view where);

/// "worker=h:1,h:2;ps=h:3", or a JSON object as under TF_CONFIG's "cluster".
ListedCluster parse_cluster_flag(std::string_view text);
/// "worker:1"
Task parse_task_flag(std::string_view text);

}  // namespace braid::launch
