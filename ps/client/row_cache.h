// A worker's copies of rows of some sparse tables of one width, with their slots, in the host's memory: which
// of a step's rows the servers need not send, and the worker's own updates of them, by the formulas and with
// the bits of the servers'. Rows are never written back: their gradients are pushed as without a cache. Of
// each step: plan(), the pulls that it asks for, land(), update().
//
// Thread rule: plan() of one thread, in the order of steps; land() in a step's turn, which when_turn() tells:
// all updates of steps before have been made; update() of one thread, in the order of steps.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/table_row.h"
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
  };
  /// Throws: InvalidArgument where tables differ in their number of slots.
  explicit RowCache(Options options);

  /// Throws: InvalidArgument, with the number, where a step of so many ids may have more rows than are kept.
  void require_room(std::int64_t ids) const;

  /// Where a step's rows come from. The spans are the cache's, until its update.
  struct Round {
    std::uint64_t step = 0;
    OrderedKeys missing, held;       // of `held` only what has changed is sent
    float* missing_rows = nullptr;   // [missing, width], values and slots
    float* held_rows = nullptr;      // [held, width]
    std::uint32_t* known = nullptr;  // [held]; 0 where the row was sent

   private:
    friend class RowCache;
    std::vector<CachePlan::Place> places;  // by key
    std::vector<std::int64_t> missing_keys, held_keys, missing_counts, held_counts;
    std::vector<std::uint32_t> knowns;
    std::vector<float> rows;
    std::function<void()> turn;  // guarded by mutex_
  };
  Round& plan(std::uint64_t step, const OrderedKeys& keys);
  /// Calls `turn` now or, by update(), when it has come.
  void when_turn(Round& round, std::function<void()> turn);
  /// The rows, values alone, [keys, dim], in the order of the keys. REQUIRES: its turn; the pulls have ended.
  void land(Round& round, float* out);
  /// The oldest step's, whose keys these are: its gradients [keys, dim] are applied. The step is over.
  void update(const OrderedKeys& keys, const UpdateParams& params, const float* gradients);

  /// REQUIRES: no step is under way.
  void clear();

  CacheCounts counts() const;
  std::int64_t rows() const { return options_.rows; }
  std::size_t bytes() const { return static_cast<std::size_t>(options_.rows) * width_ * sizeof(float); }

 private:
  /// Of the row at that place of the round, if there is one.
  void prefetch_row(const Round& round, std::size_t at) const {
    if (at >= round.places.size() || round.places[at].slot == CachePlan::kNone) return;
    const float* const values = row(round.places[at].slot);
    for (std::size_t i = 0; i < width_ && i < 64; i += 16) __builtin_prefetch(values + i, 1);
  }
  float* row(std::uint32_t slot) const {
    return reinterpret_cast<float*>(rows_.data()) + std::size_t{slot} * width_;
  }

  const Options options_;
  const std::size_t dim_, width_;  // floats: values; values and slots
  ZeroedBlock rows_;               // [rows, width]
  mutable std::mutex mutex_;
  CachePlan plan_;                             // guarded by mutex_
  std::deque<std::unique_ptr<Round>> rounds_;  // under way, the oldest first; guarded by mutex_
  std::vector<std::unique_ptr<Round>> free_;   // guarded by mutex_
};

}  // namespace braid::ps
