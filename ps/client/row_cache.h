// A worker's copies of rows of some sparse tables of one width, with their slots, in the host's memory: which
// of a step's rows the servers need not send, and the worker's own updates of them, by the formulas and with
// the bits of the servers'. Rows are never written back: their gradients are pushed as without a cache. Of
// each step that uses it: plan(), the pull that it asks for, gather(), land(), update(). Work of many rows is
// divided over the threads of a pool.
//
// Thread rule: plan() of one thread, in the order of steps; gather() and land() in a step's turn, which
// when_turn() tells: all updates of steps before have been made; update() of one thread, in the order of
// steps.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/table_row.h"
#include "base/thread_pool.h"
#include "ps/client/cache_plan.h"
#include "ps/client/ps_client.h"
#include "ps/table/zeroed_block.h"

namespace braid::ps {

class RowCache {
 public:
  struct Options {
    std::vector<OptimizerSpec> optimizers;  // by table, in the order of the keys' tables; rows as wide each
    std::int64_t dim = 0;
    std::int64_t rows = 0;                       // that are kept
    std::int64_t table_rows = 0;                 // of all the tables together
    std::optional<std::uint64_t> most_age = {};  // as of CachePlan
    ThreadPool* pool = nullptr;                  // outlives it; null: the callers' threads alone
  };
  /// Throws: InvalidArgument where tables differ in their number of slots.
  explicit RowCache(Options options);

  /// Throws: InvalidArgument, with the number, where a step of so many ids may have more rows than are kept.
  void require_room(std::int64_t ids) const;

  /// Where a step's rows come from. The spans are the cache's, until its update.
  struct Round {
    std::uint64_t step = 0;
    // EXACT: by key, what the pull says of it, and what it brings.
    const std::uint32_t* known = nullptr;
    ChangedRows changed;
    // BOUNDED: the keys to pull, and where to: [missing, width], values and slots.
    OrderedKeys missing;
    float* missing_rows = nullptr;

   private:
    friend class RowCache;
    std::vector<CachePlan::Place> places;  // by key
    std::vector<std::uint32_t> knowns, missing_places;
    std::vector<std::int64_t> missing_keys, missing_counts;
    std::vector<float> rows;
    std::function<void()> turn;  // guarded by mutex_
  };
  void plan(std::uint64_t step, const OrderedKeys& keys);
  /// Null: the step does not use the cache.
  Round* round(std::uint64_t step);
  /// Calls `turn` now or, by update(), when it has come.
  void when_turn(Round& round, std::function<void()> turn);
  /// Rows that are here, values alone, go to `out`, [keys, dim], in the order of the keys. REQUIRES: its
  /// turn.
  void gather(const Round& round, float* out) const;
  /// Rows that the pull has brought go to their slots and to `out`. REQUIRES: behind gather().
  void land(Round& round, float* out);
  /// Of a step that uses the cache, the oldest, whose keys these are: its gradients [keys, dim] are applied,
  /// and the step is over. Of another nothing.
  void update(std::uint64_t step, const OrderedKeys& keys, const UpdateParams& params,
              const float* gradients);

  /// REQUIRES: no step is under way.
  void clear();

  CacheCounts counts() const;
  std::int64_t rows() const { return options_.rows; }
  std::size_t bytes() const { return slots_ * width_ * sizeof(float); }

 private:
  /// The keys of some buckets have slots [first, first + plan.slots()).
  struct Part {
    mutable std::mutex mutex;
    CachePlan plan;  // guarded by mutex, but for release()
    std::uint32_t first;

    Part(CachePlan its, std::uint32_t from) : plan(std::move(its)), first(from) {}
  };

  void plan_part(std::size_t p, std::uint64_t step, const OrderedKeys& keys, Round& round);
  void list_missing(const OrderedKeys& keys, Round& round) const;
  void land_row(const Round& round, std::uint32_t key, const float* values, float* out) const;
  void in_ranges(std::size_t rows, FunctionRef<void(std::size_t, std::size_t)> work) const;
  /// Of the row at that place of the round, if there is one.
  void prefetch_row(const Round& round, std::size_t at, std::size_t end) const {
    if (at >= end || round.places[at].slot == CachePlan::kNone) return;
    const float* const values = row(round.places[at].slot);
    for (std::size_t i = 0; i < width_ && i < 64; i += 16) __builtin_prefetch(values + i, 1);
  }
  float* row(std::uint32_t slot) const {
    return reinterpret_cast<float*>(rows_.data()) + std::size_t{slot} * width_;
  }

  const Options options_;
  const std::size_t dim_, width_;  // floats: values; values and slots
  std::deque<Part> parts_;         // by buckets of keys
  std::size_t slots_ = 0;          // of all parts
  ZeroedBlock rows_;               // [slots_, width]
  mutable std::mutex mutex_;
  std::deque<std::unique_ptr<Round>> rounds_;  // under way, the oldest first; guarded by mutex_
  std::vector<std::unique_ptr<Round>> free_;   // guarded by mutex_
  std::uint64_t repairs_ = 0;                  // guarded by mutex_
};

}  // namespace braid::ps
