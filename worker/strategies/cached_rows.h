// The caches of a worker's sparse tables on servers (ps/client/row_cache.h), one for each group of tables
// whose rows travel together, as the ops of a step use them: its rows come from the servers or are here, and
// its gradients go to the servers and into what is here. Thread rule: as the lanes of pulls and of pushes
// call it, each in the order of steps; counts() from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ps/client/ps_client.h"
#include "ps/client/row_cache.h"

namespace braid {
class MetricsRegistry;
}

namespace braid::worker {

class CachedRows : public std::enable_shared_from_this<CachedRows> {
 public:
  using Done = ps::PsClient::Done;

  CachedRows(std::shared_ptr<ps::PsClient> servers, std::vector<ps::RowCache::Options> groups, bool exact);

  const ps::RowCache& cache(std::size_t group) const { return *caches_[group]; }

  /// request.ordered has the keys of all groups, and where their rows, values alone, go. `done` is called
  /// when they are there, behind the update of the step before; `hold` keeps the keys until the step's push.
  void pull(ps::PullRequest request, std::uint64_t step, Done done, const WaitContext& wait);
  /// request.ordered has the keys and gradients of these groups; request.step, params.
  void push(ps::PushRequest request, std::span<const int> groups, Done done, const WaitContext& wait);

  /// No row is here, and nothing has been counted. REQUIRES: no step is under way.
  void clear();

  /// Of all groups.
  ps::CacheCounts counts() const;
  /// For people, in a line; empty before the first step.
  std::string text() const;
  /// Its counts are metrics of the process, as long as it lives.
  void publish(MetricsRegistry& registry) const;

 private:
  struct Call;
  const std::shared_ptr<ps::PsClient> servers_;
  std::vector<std::unique_ptr<ps::RowCache>> caches_;
  const bool exact_;
};

}  // namespace braid::worker
