#include "worker/run/job_report.h"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/env.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/wait_context.h"
#include "comm/communicator.h"
#include "launch/job_results.h"
#include "worker/process/share_text.h"

namespace braid::worker {
namespace {

// The leader may still wait for a hook.
constexpr std::chrono::seconds kGatherTime{90};

void print(const std::string& line) {
  if (std::fputs((line + "\n").c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return;
  log_error("the result cannot be written: {}", std::strerror(errno));
  std::clearerr(stdout);  // what was trained is in the checkpoint, so the run has not failed
}

/// Of all workers, by rank, on each.
std::vector<std::string> gather(const std::string& own, int world, int rank,
                                comm::Communicator& communicator) {
  const WaitContext wait = WaitContext::with_timeout(kGatherTime);
  std::vector<std::string> all(static_cast<std::size_t>(world));
  all[static_cast<std::size_t>(rank)] = own;
  for (int root = 0; root < world; ++root)
    share_text(all[static_cast<std::size_t>(root)], communicator, wait, root);
  return all;
}

/// The leader's alone; false when the others cannot be asked.
bool print_for_all(const std::string& result, int exit, const launch::ClusterSpec& cluster,
                   comm::Communicator& communicator) {
  std::vector<std::string> all;
  try {
    all = gather(result, cluster.world, cluster.rank.value_or(0), communicator);
  } catch (const Error& error) {
    log_warning("the results of the other workers are not known: {}", error.message());
    return false;
  }
  if (!cluster.is_leader()) return true;
  launch::JobResults results;
  const std::vector<launch::Task> tasks = cluster.tasks();
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    results.add(tasks[rank], "result: " + all[rank]);
    results.ended(tasks[rank], {exit, 0});  // they end alike
  }
  for (const std::string& line : results.last_lines(cluster.leader(), "result: " + result)) print(line);
  return true;
}

}  // namespace

void print_result(const std::string& result, int exit, const launch::ClusterSpec& cluster,
                  comm::Communicator* communicator) {
  // A launcher that writes one line for the job.
  if (const auto file = env_string("BRAID_RESULT_FILE"); file && !file->empty())
    return write_file_atomically(*file, result);
  if (cluster.shared_output && cluster.world > 1) {
    if (communicator && print_for_all(result, exit, cluster, *communicator)) return;
    if (!cluster.is_leader()) return print(fmt::format("result of {}: {}", task_name(cluster.task), result));
  }
  print("result: " + result);
}

}  // namespace braid::worker
