// Rows of some sparse tables of one width whose home is this worker: which of them are here, in the memory of
// variables with room for some rows of each table, and which come and go with a step. Rows themselves pass
// through the blocks of base/home_block.h. What was not used lately makes room (home_plan.h).
// Of each step: plan(), the pull that it asks for, the swap (the step's own, wherever the variables lie),
// leaving().
//
// Thread rule: plan(), dirty(), cleaned(), clear() of one thread at a time, in the order of steps;
// leaving() in the order of steps, beside them; counts() from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "base/home_block.h"
#include "base/thread_pool.h"
#include "ps/client/home_plan.h"
#include "ps/client/ps_client.h"

namespace braid::ps {

/// How many rows of each table have room where `rows` have in all: as many times the rows that a step may
/// name of it for each, but no more than it has. Throws: InvalidArgument, with the number, where that is less
/// than a step may name.
std::vector<std::int64_t> share_home(std::int64_t rows, std::int64_t dim,
                                     const std::vector<std::int64_t>& table_rows,
                                     const std::vector<std::int64_t>& ids);

class HomeRows {
 public:
  struct Options {
    std::vector<int> tables;          // their numbers in the table set, in the order of the keys' tables
    std::vector<std::int64_t> slots;  // rows that have room, by table
    int servers = 1;
    HomeLayout layout;
    ThreadPool* pool = nullptr;  // outlives it; null: the callers' threads alone
  };
  explicit HomeRows(Options options);

  const HomeLayout& layout() const { return options_.layout; }
  /// REQUIRES: before plan(); layout().bytes() of it, which live as long as this.
  void set_memory(std::byte* memory) { memory_ = memory; }

  /// Fills the step's block but for its rows. Result: what is to be pulled, with slots, to the block's `in`;
  /// its spans live until the next but layout().steps - 1. A row that is not here and of which `is_leaving`
  /// says so, by its table (counted within the group) and key, is not pulled: it is returning(). REQUIRES:
  /// the step that had the block is over.
  OrderedPull plan(std::uint64_t step, const OrderedKeys& keys,
                   FunctionRef<bool(int, std::int64_t)> is_leaving);
  /// A row that the step needs and that is on its way to the servers.
  struct Returning {
    int table;
    std::int64_t key;
    std::size_t swap;
  };
  std::span<const Returning> returning(std::uint64_t step) const { return round(step).returning; }
  /// Such a row, with its slots, as it comes with that swap.
  void put_back(std::uint64_t step, std::size_t swap, const float* row) const;
  /// Rows that made room in that step and were used since cleaned(): calls `row`(table, key, swap).
  void for_leaving(std::uint64_t step, FunctionRef<void(int, std::int64_t, std::size_t)> row) const;

  /// Rows for PsClient::write_rows_async(), in memory of their own.
  struct Written {
    std::vector<std::int64_t> keys, counts;
    std::vector<float> rows;            // each behind another, and behind it the step that used it last
    std::vector<std::uint32_t> places;  // in `keys`, of each row that was looked at; of leaving(): by swap
    std::vector<int> tables;
    std::size_t width = 0;
    const float* row_of(std::size_t looked_at) const { return rows.data() + places[looked_at] * (width + 1); }
    OrderedPush push() const { return {{tables, keys.data(), counts}, rows.data()}; }
    bool empty() const { return keys.empty(); }
  };
  /// Of the same step, whose swap has been made: what for_leaving() names.
  std::shared_ptr<Written> leaving(std::uint64_t step) const;

  /// A row that is here and newer than the servers', which only this worker has.
  struct Dirty {
    std::int32_t table;  // within the group
    std::uint32_t slot;
    HomePlan::Row row;
  };
  std::vector<Dirty> dirty() const;
  /// `values`(table, slot, out [width]) gives each.
  std::shared_ptr<Written> written(std::span<const Dirty> rows,
                                   FunctionRef<void(std::int32_t, std::uint32_t, float*)> values) const;
  /// The servers have all rows as they are before `step`.
  void cleaned(std::uint64_t step) { clean_before_ = step; }

  /// No row is here, and nothing has been counted.
  void clear();
  CacheCounts counts() const;

 private:
  /// A row that made room, for the key at that place.
  struct Gone {
    std::size_t at;
    HomePlan::Row row;
  };
  struct Round {
    std::vector<std::uint8_t> hits;       // by key
    std::vector<std::vector<Gone>> gone;  // by table, in the order of places
    std::vector<std::int64_t> missing_keys, missing_counts;
    std::vector<HomePlan::Row> left;  // by swap; table -1: nobody, or the servers have it as it was
    std::vector<Returning> returning;
    std::vector<std::pair<std::int32_t, HomePlan::Row>> returning_slots;  // of these, and who left there
  };

  void plan_table(std::size_t table, std::uint64_t step, const OrderedKeys& keys, Round& round,
                  std::int32_t* slots);
  void list_swaps(const OrderedKeys& keys, Round& round, const HomeBlock& block,
                  FunctionRef<bool(int, std::int64_t)> is_leaving) const;
  std::shared_ptr<Written> sorted(std::size_t rows, FunctionRef<const HomePlan::Row&(std::size_t)> row,
                                  FunctionRef<void(std::size_t, float*)> values) const;
  const Round& round(std::uint64_t step) const { return rounds_[step % options_.layout.steps]; }
  HomeBlock block(std::uint64_t step) const { return home_block(options_.layout, memory_, step); }

  const Options options_;
  std::byte* memory_ = nullptr;
  std::vector<HomePlan> plans_;  // by table
  std::vector<Round> rounds_;    // by block
  std::uint64_t clean_before_ = 0;
  mutable std::mutex mutex_;
  CacheCounts counts_;  // guarded by mutex_
};

}  // namespace braid::ps
