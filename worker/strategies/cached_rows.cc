#include "worker/strategies/cached_rows.h"

#include <fmt/format.h>

#include <atomic>
#include <functional>
#include <optional>
#include <stop_token>
#include <utility>

#include "base/error.h"

namespace braid::worker {

/// A step's rows until all are at their places, or the step is given up. Each group's rows that are here go
/// to theirs in its turn, and what the servers have sent behind all of these.
struct CachedRows::Call {
  struct Part {
    ps::RowCache* cache;
    ps::RowCache::Round* round;
    float* rows;
  };

  Call(std::vector<Part> all, Done when_done)
      : parts(std::move(all)), done(std::move(when_done)), left(parts.size() + 1) {}

  void pulled(ErrorPtr error) {
    if (error) return end(std::move(error));
    came(nullptr);
  }
  /// The turn of a part, or null: the servers have answered.
  void came(const Part* part) {
    {
      const std::lock_guard lock(mutex);
      if (over) return;
      if (part != nullptr) part->cache->gather(*part->round, part->rows);
      if (--left > 0) return;
      for (const Part& its : parts) its.cache->land(*its.round, its.rows);
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
  std::size_t left;                                                  // guarded by mutex
  bool over = false;                                                 // guarded by mutex
  std::optional<std::stop_callback<std::function<void()>>> on_stop;  // of the step
};

CachedRows::CachedRows(std::shared_ptr<ps::PsClient> servers, std::vector<ps::RowCache::Options> groups,
                       bool exact)
    : servers_(std::move(servers)), exact_(exact) {
  for (ps::RowCache::Options& group : groups)
    caches_.push_back(std::make_unique<ps::RowCache>(std::move(group)));
}

void CachedRows::plan(std::uint64_t step, std::span<const ps::OrderedKeys> keys) {
  {
    const std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    const double seconds = at_ ? std::chrono::duration<double>(now - *at_).count() : 0;
    at_ = now;
    ++steps_;
    if (exact_ && !choice_.next(seconds)) return;
    ++used_;
  }
  for (std::size_t g = 0; g < caches_.size(); ++g) caches_[g]->plan(step, keys[g]);
}

void CachedRows::pull(ps::PullRequest request, std::uint64_t step, Done done, const WaitContext& wait) {
  std::vector<Call::Part> parts;
  for (std::size_t g = 0; g < caches_.size(); ++g)
    if (ps::RowCache::Round* const round = caches_[g]->round(step))
      parts.push_back({caches_[g].get(), round, request.ordered[g].rows});
  if (parts.empty()) return servers_->pull_async(std::move(request), std::move(done), wait);
  request.slots = true;
  request.names_all = !exact_ && request.min_version > 0;
  if (exact_) request.ahead = 0;  // what it lacks comes with what has changed
  for (std::size_t g = 0; g < parts.size(); ++g) {
    ps::RowCache::Round& round = *parts[g].round;
    ps::OrderedPull& pull = request.ordered[g];
    pull = exact_ ? ps::OrderedPull{pull.keys, nullptr, round.known, &round.changed}
                  : ps::OrderedPull{round.missing, round.missing_rows};
  }
  auto call = std::make_shared<Call>(std::move(parts), std::move(done));
  // The update that a turn waits for may never come.
  call->on_stop.emplace(wait.stop, [weak = std::weak_ptr(call)] {
    if (const auto its = weak.lock())
      its->end(make_error(ErrorCode::Cancelled, "a pull of cached rows: cancelled"));
  });
  servers_->pull_async(
      std::move(request), [call](ErrorPtr error) { call->pulled(std::move(error)); }, wait);
  for (const Call::Part& part : call->parts)
    part.cache->when_turn(*part.round, [call, &part] { call->came(&part); });
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
  const std::uint64_t step = request.step;
  servers_->push_async(
      std::move(request),
      [join](ErrorPtr error) {
        join->error = std::move(error);
        join->ended();
      },
      wait);
  for (std::size_t i = 0; i < groups.size(); ++i)
    caches_[static_cast<std::size_t>(groups[i])]->update(step, pushed[i].keys, params, pushed[i].gradients);
  join->ended();
}

void CachedRows::clear() {
  for (const auto& cache : caches_) cache->clear();
  const std::lock_guard lock(mutex_);
  choice_ = {};
  at_.reset();
  steps_ = used_ = 0;
}

ps::CacheCounts CachedRows::counts() const {
  ps::CacheCounts sum;
  for (const auto& cache : caches_) add(sum, cache->counts());
  return sum;
}

std::optional<std::uint64_t> CachedRows::used_steps() const {
  const std::lock_guard lock(mutex_);
  return used_;
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
  text += fmt::format(", {} evicted, {} found no slot", its.evictions, its.uncached);
  const std::lock_guard lock(mutex_);
  if (choice_.without_seconds() > 0)
    text += fmt::format("; used in {:.0f} % of the steps ({:.2f} ms a step with it, {:.2f} without)",
                        100 * static_cast<double>(used_) / static_cast<double>(steps_),
                        1e3 * choice_.with_seconds(), 1e3 * choice_.without_seconds());
  return text;
}

}  // namespace braid::worker
