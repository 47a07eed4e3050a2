// Pulls and pushes on trial: what a step exchanges, made before the job has values, so that its time can be
// measured. They work on tables of their own and leave no trace in rounds, watermarks and counters. Where
// updates are made in rounds a pull waits for this worker's own pushes of the step before, as if it were the
// only worker. Thread rule: one thread at a time (the core's lock), but for what is posted.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "ps/server/requests.h"
#include "ps/server/server_tables.h"
#include "ps/server/table_threads.h"

namespace braid::ps {

class Trial {
 public:
  /// `rounds`: pulls wait.
  Trial(std::shared_ptr<ServerTables> tables, bool rounds) : tables_(std::move(tables)), rounds_(rounds) {}
  ~Trial();  // what waits completes with Cancelled

  /// Throws: InvalidArgument.
  void pull(std::shared_ptr<PullJob> job, BufferPool& pool, TableThreads& threads);
  void push(const std::shared_ptr<PushJob>& job, BufferPool& pool, TableThreads& threads);
  /// That worker tries no more. Result: whether nobody does.
  bool ended(std::int32_t worker);
  /// Ends what has waited for too long.
  void tick(Clock::time_point now);

 private:
  bool satisfied(const PullJob& job) const;
  void post(const std::shared_ptr<PullJob>& job, BufferPool& pool, TableThreads& threads) const;

  const std::shared_ptr<ServerTables> tables_;
  const bool rounds_;
  std::map<std::pair<std::int32_t, TableId>, std::uint64_t> pushed_;  // 1 + the newest step, by worker
  std::list<std::shared_ptr<PullJob>> parked_;
  std::set<std::int32_t> workers_;  // that try
};

/// Dense values, rows; of what names its rows which they are, and these.
void add_pieces(const PullWork& work, const RepairWork& named, PullAnswer& answer);

}  // namespace braid::ps
