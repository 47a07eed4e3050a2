// What all requests of a client share: the links to the servers, the tables and where they lie; and the join
// of one request's answers. Thread rule: the tables are set once, before requests; the rest is safe from any
// thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <vector>

#include "ps/buffer_pool.h"
#include "ps/client/ahead_choice.h"
#include "ps/client/ps_client.h"
#include "ps/client/server_link.h"
#include "ps/shard_plan.h"

namespace braid::ps {

/// How many of something are under way, and the wait for none.
class Outstanding {
 public:
  void begin();
  void end();
  /// Throws: DeadlineExceeded, Cancelled, naming `what`.
  void wait_none(const WaitContext& wait, std::string_view what);

 private:
  std::mutex mutex_;
  std::condition_variable_any none_;
  std::uint64_t count_ = 0;  // guarded by mutex_
};

struct Fleet {
  RetryTimer timer;
  std::vector<std::shared_ptr<ServerLink>> links;
  BufferPool pool;
  std::optional<TableSet> set;
  std::optional<ShardPlan> plan;
  Outstanding requests;
  Outstanding pushes;
  std::atomic<std::uint64_t> applied{0}, duplicate{0}, dropped{0}, late{0};
  std::atomic<std::uint64_t> pulled_ahead{0}, repaired{0}, unknown{0};
  AheadChoice ahead;
  std::atomic<bool> trial{false};

  int servers() const { return static_cast<int>(links.size()); }
  /// Throws: InvalidArgument before create_tables.
  void require_tables() const;
  /// What a server answers when a round's deadline comes names the workers that it waits for; a worker may be
  /// late because another server is gone. Puts before such an answer, and before that a wait was cancelled,
  /// the servers that are silent to us.
  ErrorPtr with_silent_servers(ErrorPtr error) const;
};

/// One request's calls to several servers. `done` is called once, when the last has ended, with the first
/// error; the first error cancels the others.
class Join {
 public:
  Join(Fleet& fleet, std::size_t calls, const WaitContext& wait, PsClient::Done done);
  /// The caller's deadline, and a stop token that also ends with a sibling's error.
  WaitContext wait() const { return {deadline_, stop_.get_token()}; }
  void ended(ErrorPtr error);

 private:
  Fleet& fleet_;
  const WaitContext::Clock::time_point deadline_;
  std::stop_source stop_;
  std::optional<std::stop_callback<std::function<void()>>> on_caller_stop_;
  PsClient::Done done_;
  std::mutex mutex_;
  std::size_t remaining_;  // guarded by mutex_
  ErrorPtr error_;         // guarded by mutex_
};

/// Throws: InvalidArgument where the tables are none of the set's, have different dims, or counts are not
/// theirs. Result: the dim.
std::size_t check_ordered(const Fleet& fleet, const OrderedKeys& keys, const char* what);
/// Numbers of a row of each of these tables and its slots. Throws: InvalidArgument where they differ in that.
std::size_t row_width_of(const Fleet& fleet, const OrderedKeys& keys);

/// `done` gets errors of bad requests too; these throw nothing.
void start_pull(Fleet& fleet, const PullRequest& request, PsClient::Done done, const WaitContext& wait);
void start_push(Fleet& fleet, const PushRequest& request, PsClient::Done done, const WaitContext& wait);
void start_assign(Fleet& fleet, int table, std::span<const float> values, PsClient::Done done,
                  const WaitContext& wait);
/// Rows with their slots and steps of last use.
void start_write(Fleet& fleet, const std::vector<OrderedPush>& rows, PsClient::Done done,
                 const WaitContext& wait);
/// Ends when all servers have initial values; `version` falls to the number of rounds that are applied to
/// every table.
void start_wait_initialized(Fleet& fleet, std::shared_ptr<std::atomic<std::uint64_t>> version,
                            PsClient::Done done, const WaitContext& wait);

}  // namespace braid::ps
