// Starts the tasks of a cluster as processes of this host, or of others over ssh (launch/remote_task.h),
// shows their output, and ends them together. Each gets the same command and a TF_CONFIG that says which task
// it is, with ports of 127.0.0.1; and a BRAID_TOKEN that is drawn anew for each job, so that nobody else on
// the host can take part, unless one is set already.
//
// Output. Standard output of the launcher is that of the leading task (the chief, else worker 0), without a
// prefix, its "result:" line last; everything else goes to standard error with "[worker 1] " in front. Where
// the launcher's output is a terminal the leading task writes to it itself, so that it may draw a bar. Output
// that nobody reads holds the tasks up in their writes, and never the launcher: signals and ends of tasks are
// looked after all the same. At the end what nobody reads for `grace` is given up, with a line that says so.
//
// End. Workers, chief and evaluator end by themselves; then the servers get SIGTERM. When a task fails, the
// others have `grace` to end by themselves, then get SIGTERM, and SIGKILL after `grace` again. SIGINT,
// SIGTERM, SIGHUP and SIGPIPE (nobody is left who could read the output) are passed on, the latter two as
// SIGTERM, to all but the servers, which stay for the checkpoint; what then runs after `grace` is killed, as
// is everything on a second SIGINT (see kOneRequest). A task that a signal (SIGSTOP) has stopped by then, and
// that nobody lets go on within two seconds, is killed at once. A server that exits with 0 or 143 is never a
// failure. No child outlives the launcher, however it ends. Thread rule: one launch in a process at a time.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "launch/child_process.h"
#include "launch/environment.h"
#include "launch/host_file.h"

namespace braid::launch {

struct LocalLaunchOptions {
  int workers = 1;
  int servers = 0;
  int evaluators = 0;  // 0 or 1
  bool with_chief = false;
  /// Program and arguments, the same for every task.
  std::vector<std::string> command;
  /// What the tasks get, beside TF_CONFIG.
  Environment environment = process_environment();
  /// What is forwarded of a task's output also goes, as it came, to "<log_dir>/worker-0.log". Empty: nowhere.
  std::filesystem::path log_dir;
  bool prefix_lines = true;
  /// A failed task does not end the others, for modes that go on without a worker.
  bool keep_going = false;
  /// The job is elastic: it is its leader's. Another worker that is lost ends nothing, and is started again
  /// as long as `restarts` says, which is counted down; null: never.
  bool elastic = false;
  int* restarts = nullptr;
  /// Each task gets an HTTP address for its page (BRAID_HTTP) and those of the others (BRAID_HTTP_PEERS), the
  /// leader's at the head of the output: the page of the whole job.
  bool watch = false;
  int watch_port = 0;  // of the leader's page, on 127.0.0.1; 0: a free one
  /// Tasks run on these hosts, over ssh, with the same program, directory and variables of Braid and NCCL;
  /// all must reach each other. Empty: here.
  std::vector<Host> hosts;
  std::vector<std::string> ssh{"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20"};
  int first_port = 0;  // of the tasks of each host; 0: one of 20000 to 28000 by chance
  /// Beyond what a worker that is asked to stop waits for a lost peer (15 s, worker/process/stop_grace.h).
  std::chrono::milliseconds grace{30'000};
  /// Where the launcher writes.
  int out = 1;
  int err = 2;
};

/// Runs the job to its end. The exit code is job_exit_code of all tasks.
/// Throws: InvalidArgument for counts that make no cluster and a command that cannot be run; Unavailable.
int launch_local(const LocalLaunchOptions& options);

/// The exit code of a job whose tasks ended with `statuses`, in the order in which they ended. What another
/// start cannot mend beats what it may, since a task that is lost takes its peers along: 2 (bad input), then
/// 1 and other codes below 128, then 138 for a task that lost a peer or was lost itself to a signal, then 143
/// and 130 (asked to stop), then 0. Of equal ones the first counts.
int job_exit_code(const std::vector<ExitStatus>& statuses);

}  // namespace braid::launch
