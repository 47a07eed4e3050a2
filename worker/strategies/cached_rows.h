// The caches of a worker's sparse tables on servers (ps/client/row_cache.h), one for each group of tables
// whose rows travel together, as the ops of a step use them: its rows come from the servers or are here, and
// its gradients go to the servers and into what is here. EXACT: steps are made without it where that takes
// less time (ps/client/cache_choice.h). Thread rule: as the lanes of pulls and of pushes call it, each in the
// order of steps; counts() from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ps/client/cache_choice.h"
#include "ps/client/ps_client.h"
#include "ps/client/row_cache.h"
#include "worker/strategies/kept_rows.h"

namespace braid::worker {

class CachedRows : public KeptRows {
 public:
  using Done = ps::PsClient::Done;

  CachedRows(std::shared_ptr<ps::PsClient> servers, std::vector<ps::RowCache::Options> groups, bool exact);

  const ps::RowCache& cache(std::size_t group) const { return *caches_[group]; }

  /// Ahead of the step's pull, in the order of steps: the keys of all groups. What is not planned is pulled
  /// and pushed as without a cache.
  void plan(std::uint64_t step, std::span<const ps::OrderedKeys> keys);
  /// request.ordered has the keys of all groups, and where their rows, values alone, go. `done` is called
  /// when they are there, behind the update of the step before.
  void pull(ps::PullRequest request, std::uint64_t step, Done done, const WaitContext& wait);
  /// request.ordered has the keys and gradients of these groups; request.step, params.
  void push(ps::PushRequest request, std::span<const int> groups, Done done, const WaitContext& wait);

  /// No row is here, and nothing has been counted. REQUIRES: no step is under way.
  void clear();

  ps::CacheCounts counts() const override;
  std::string text() const override;
  std::optional<std::uint64_t> used_steps() const override;

 private:
  struct Call;
  const std::shared_ptr<ps::PsClient> servers_;
  std::vector<std::unique_ptr<ps::RowCache>> caches_;
  const bool exact_;
  mutable std::mutex mutex_;
  ps::CacheChoice choice_;                                   // guarded by mutex_
  std::optional<std::chrono::steady_clock::time_point> at_;  // of the last plan(); guarded by mutex_
  std::uint64_t steps_ = 0, used_ = 0;                       // planned; with the cache; guarded by mutex_
};

}  // namespace braid::worker
