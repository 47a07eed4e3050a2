// The parameters of a stage, under the names and with the defaults that users of staged input know, and what
// a session declares for its stages. docs/user/staging.md says what each does here and where the original
// differs. Thread rule: values.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace braid {

class StagePools;  // engine/staging/stage_pools.h

/// What happens when a finished batch finds no room for `timeout_millis`.
enum class TimeoutPolicy {
  Error,  // takers get DeadlineExceeded at its place
  Drop,   // it is dropped and counted
  Wait,   // it keeps waiting; takers wait as long as their own deadline allows
};
std::optional<TimeoutPolicy> timeout_policy_from_name(std::string_view name);  // "ERROR", "DROP", "WAIT"
std::string_view timeout_policy_name(TimeoutPolicy policy);

struct StageOptions {
  /// For `capacity` and `num_threads`: measured and settled within 50 batches (engine/staging/stage_tuner.h).
  static constexpr int kAuto = -1;

  std::string name = "stage";
  int capacity = 1;     // finished batches that wait to be taken; each thread holds at most one more
  int num_threads = 1;  // batches that are made at the same time
  int num_clients = 1;  // takers that are served at the same time; further ones wait for their turn
  std::chrono::milliseconds timeout_millis{300000};  // of a batch waiting for room, and of one take()
  TimeoutPolicy on_timeout = TimeoutPolicy::Error;
  bool ordered = true;  // batches come out in the order of their tickets, else in that of their completion
  std::vector<ErrorCode> closed_exception_types{ErrorCode::OutOfRange};
  std::vector<ErrorCode> ignored_exception_types = {};
  /// More ignored errors in a row than this, on one thread, are an error. Each waits twice as long as the one
  /// before, from `ignored_backoff` up to a second.
  int max_ignored_in_a_row = 100;
  std::chrono::milliseconds ignored_backoff{1};
  bool use_stage_subgraph_thread_pool = false;
  int stage_subgraph_thread_pool_id = 0;
  /// Above 0: on the step's device the stage's part runs there, on streams of its own (SubgraphRunner); 0: on
  /// the host.
  int stage_subgraph_stream_id = 0;

  friend bool operator==(const StageOptions&, const StageOptions&) = default;
};

/// What the session of a stage declares.
struct StageSession {
  std::shared_ptr<StagePools> pools = nullptr;  // null: none
  int streams = 1;                              // of the main graph
  bool stage_multi_stream = false;              // stages may have streams of their own
  std::vector<int> priorities = {};             // of the streams, by id; those that it does not have are 0
};

/// Throws: InvalidArgument naming the stage and the parameter.
void check_stage_options(const StageOptions& options, const StageSession& session);

}  // namespace braid
