#include "worker/strategies/cached_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <utility>

#include "base/error.h"
#include "base/metrics.h"

namespace braid::worker {

/// A step's rows until all are at their places, or the step is given up.
struct CachedRows::Call {
  struct Part {
    ps::RowCache* cache;
    ps::RowCache::Round* round;
    float* rows;
  };

  Call(std::vector<Part> all, Done when_done) : parts(std::move(all)), done(std::move(when_done)) {}

  /// One of the two pulls has ended. Behind the second the rows go to their places, each group's in its turn.
  static void pulled(const std::shared_ptr<Call>& call, ErrorPtr error) {
    {
      const std::lock_guard lock(call->mutex);
      if (error && !call->failed) call->failed = std::move(error);
      if (--call->pulls > 0) return;
    }
    if (call->failed) return call->end(call->failed);
    for (const Part& part : call->parts)
      part.cache->when_turn(*part.round, [call, &part] { call->land(part); });
  }
  void land(const Part& part) {
    {
      const std::lock_guard lock(mutex);
      if (over) return;
      part.cache->land(*part.round, part.rows);
      if (++landed < parts.size()) return;
    }
    end(nullptr);
  }
  void end(ErrorPtr error) {
    {
      const std::lock_guard lock(mutex);
      if (std::exchange(over, true)) return;
    }
    done(std::move(error));
  }

  const std::vector<Part> parts;
  const Done done;
  std::mutex mutex;
  int pulls = 2;           // guarded by mutex
  std::size_t landed = 0;  // guarded by mutex
  bool over = false;       // guarded by mutex
  ErrorPtr failed;         // guarded by mutex until no pull is under way
  std::optional<std::stop_callback<std::function<void()>>> on_stop;  // of the step
};

CachedRows::CachedRows(std::shared_ptr<ps::PsClient> servers, std::vector<ps::RowCache::Options> groups,
                       bool exact)
    : servers_(std::move(servers)), exact_(exact) {
  for (ps::RowCache::Options& group : groups)
    caches_.push_back(std::make_unique<ps::RowCache>(std::move(group)));
}

void CachedRows::pull(ps::PullRequest request, std::uint64_t step, Done done, const WaitContext& wait) {
  ps::PullRequest held;
  held.min_version = request.min_version;
  held.slots = request.slots = true;
  request.names_all = !exact_ && request.min_version > 0;
  std::vector<Call::Part> parts;
  for (std::size_t g = 0; g < caches_.size(); ++g) {
    ps::OrderedPull& pull = request.ordered[g];
    ps::RowCache::Round& round = caches_[g]->plan(step, pull.keys);
    parts.push_back({caches_[g].get(), &round, pull.rows});
    pull = {round.missing, round.missing_rows};
    if (exact_) held.ordered.push_back({round.held, round.held_rows, round.known});
  }
  auto call = std::make_shared<Call>(std::move(parts), std::move(done));
  const auto ended = [call](ErrorPtr error) { Call::pulled(call, std::move(error)); };
  // The update that a turn waits for may never come.
  call->on_stop.emplace(wait.stop, [weak = std::weak_ptr(call)] {
    if (const auto its = weak.lock())
      its->end(make_error(ErrorCode::Cancelled, "a pull of cached rows: cancelled"));
  });
  servers_->pull_async(std::move(request), ended, wait);
  if (exact_)
    servers_->pull_async(std::move(held), ended, wait);
  else
    ended(nullptr);
}

void CachedRows::push(ps::PushRequest request, std::span<const int> groups, Done done,
                      const WaitContext& wait) {
  struct Join {
    Done done;
    std::atomic<int> left{2};
    ErrorPtr error;
    void ended() {
      if (left.fetch_sub(1) == 1) done(error);
    }
  };
  auto join = std::make_shared<Join>();
  join->done = std::move(done);
  const std::vector<ps::OrderedPush> pushed = request.ordered;
  const UpdateParams params = request.params;
  servers_->push_async(
      std::move(request),
      [join](ErrorPtr error) {
        join->error = std::move(error);
        join->ended();
      },
      wait);
  for (std::size_t i = 0; i < groups.size(); ++i)
    caches_[static_cast<std::size_t>(groups[i])]->update(pushed[i].keys, params, pushed[i].gradients);
  join->ended();
}

void CachedRows::clear() {
  for (const auto& cache : caches_) cache->clear();
}

ps::CacheCounts CachedRows::counts() const {
  ps::CacheCounts sum;
  for (const auto& cache : caches_) {
    const ps::CacheCounts its = cache->counts();
    sum.hits += its.hits;
    sum.misses += its.misses;
    sum.repairs += its.repairs;
    sum.expired += its.expired;
    sum.evictions += its.evictions;
    sum.uncached += its.uncached;
    sum.largest_age = std::max(sum.largest_age, its.largest_age);
  }
  return sum;
}

void CachedRows::publish(MetricsRegistry& registry) const {
  registry.on_collect([&registry, weak = weak_from_this()] {
    const auto its = weak.lock();
    if (!its) return;
    const ps::CacheCounts counts = its->counts();
    const auto rows = [&](const char* op, std::uint64_t total) {
      Counter& counter = registry.counter("braid_row_cache_rows_total",
                                          "Rows of sparse tables that steps have named, by what became of "
                                          "them in the worker's cache.",
                                          {{"op", op}});
      if (const double behind = static_cast<double>(total) - counter.value(); behind > 0) counter.add(behind);
    };
    rows("hit", counts.hits);
    rows("miss", counts.misses);
    rows("repaired", counts.repairs);
    rows("expired", counts.expired);
    rows("evicted", counts.evictions);
    rows("uncached", counts.uncached);
    registry
        .gauge("braid_row_cache_largest_age_steps", "Steps since the oldest row that was used was pulled.",
               {})
        .set(static_cast<double>(counts.largest_age));
  });
}

std::string CachedRows::text() const {
  const ps::CacheCounts its = counts();
  const std::uint64_t all = its.hits + its.misses;
  if (all == 0) return {};
  const auto share = [all](std::uint64_t of) {
    return 100 * static_cast<double>(of) / static_cast<double>(all);
  };
  std::string text = fmt::format("row cache: {} rows asked for, {:.1f} % were here", all, share(its.hits));
  text += exact_ ? fmt::format(" ({:.1f} % changed by others and sent again)", share(its.repairs))
                 : fmt::format(" (the oldest for {} steps), {:.1f} % too old", its.largest_age,
                               share(its.expired));
  return text + fmt::format(", {} evicted, {} found no slot", its.evictions, its.uncached);
}

}  // namespace braid::worker
