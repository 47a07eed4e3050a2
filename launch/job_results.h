// What the workers of a job said in their last lines ("result: {JSON}"), in one place: a table with a row a
// task, and one line for the job, which is the leading task's with those of all behind it. Thread rule: one
// thread.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "launch/child_process.h"
#include "launch/cluster_spec.h"

namespace braid::launch {

class JobResults {
 public:
  JobResults() = default;
  ~JobResults();  // removes own_file()
  JobResults(const JobResults&) = delete;
  JobResults& operator=(const JobResults&) = delete;

  /// "result: {...}" of that task; the last one counts. Any other line is none.
  void add(const Task& task, std::string_view line);
  void ended(const Task& task, const ExitStatus& status) { statuses_[task] = status; }
  /// A file for the JSON of a leader whose output is not read here. Throws: Unavailable.
  std::string own_file();

  /// What the job's output ends with: a row a task, in their order, and the job's line, which is the leader's
  /// with "tasks": [{"task": "worker 0", "steps": ...}, ...] in it. `held`: the leader's line. There is no
  /// table, and the line is as it is, unless two tasks or more said what they trained.
  std::vector<std::string> last_lines(const Task& leader, const std::string& held);

 private:
  std::vector<std::string> table() const;
  std::string job_line(const Task& leader) const;

  std::map<Task, std::string> lines_;  // JSON
  std::map<Task, ExitStatus> statuses_;
  std::filesystem::path directory_;  // of own_file(); empty: none
};

}  // namespace braid::launch
