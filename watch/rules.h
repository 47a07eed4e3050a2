// What limits a job, and what to change: one table of rules over what its processes tell (watch/status.h),
// used alike by `braid doctor ADDR`, `braid top` and the page. docs/user/status.md lists them. A rule speaks
// only of what it measured, and names a setting of the job or what to look at. Thread rule: pure functions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "watch/job_status.h"

namespace braid::watch {

/// Shares and seconds from which a rule speaks.
struct RuleLimits {
  double input_wait = 0.2;      // of the compute streams' time
  double peer_wait = 0.2;       // of the other workers' time, for a worker or a server to be called slow
  double slow_worker = 0.45;    // its wait for peers is at most so much of the others'
  double slow_rate = 0.7;       // examples/s where workers do not wait for each other
  double hot_server = 1.5;      // bytes, or time, over the servers' mean
  double little_overlap = 1.1;  // compute streams' busy times over their union
  double compute_busy = 0.3;    // for streams and batches to matter
  double small_node_seconds = 4e-6;
  double memory = 0.9;            // of its limit
  double stopped_seconds = 3;     // a peer is silent, or its step stands still, for so long
  double checkpoint_share = 0.1;  // of the time since the start
};

struct Rule {
  const char* name;       // "slow_input"
  const char* condition;  // in a few words, for the table of the documentation
  std::vector<Warning> (*find)(const JobStatus&, const RuleLimits&);
};

const std::vector<Rule>& rules();
/// Of all rules, the most telling first: what stands still, what waits, what is wasted.
std::vector<Warning> find_warnings(const JobStatus& job, const RuleLimits& limits = {});
/// Of a process by itself, as a job of one.
std::vector<Warning> find_warnings(const Status& status);

}  // namespace braid::watch
