// Which rows a cache keeps, and where: the policy alone, without the rows, so that these may lie anywhere.
// A step names its rows by use(), once each, and lets them go by release() when it has updated them; until
// then they keep their slots. A slot that nobody holds is taken from the row that was used longest ago.
//
//   EXACT      a row is told to the server with the step in which this worker used it last; it is as the
//              server has it unless others have changed it since (ps/server: changed())
//   BOUNDED    a row is used for so many steps after it was pulled, and then pulled again
//
// Thread rule: one thread at a time; release() also beside it.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "ps/table_set.h"

namespace braid::ps {

/// Of the rows that steps have named, each counted once a step.
struct CacheCounts {
  std::uint64_t hits = 0;         // were here
  std::uint64_t misses = 0;       // were not
  std::uint64_t repairs = 0;      // of the hits (EXACT): others had changed it, and the server sent it again
  std::uint64_t expired = 0;      // of the misses (BOUNDED): was here and too old
  std::uint64_t evictions = 0;    // rows that lost their slot to another
  std::uint64_t uncached = 0;     // of the misses: all slots were held by steps under way
  std::uint64_t largest_age = 0;  // steps since a hit was pulled (BOUNDED)
};

void add(CacheCounts& sum, const CacheCounts& its);

class CachePlan {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  /// Where a row of a step lies.
  struct Place {
    std::uint32_t slot = kNone;  // kNone: nowhere
    bool hit = false;            // its values are there, or will be when the steps before are done
    std::uint32_t known = 0;     // of a hit: 1 + the step that used it last, modulo 2^32
  };

  /// `most_age`: nothing for EXACT, else steps. REQUIRES: 0 < slots < 2^31.
  CachePlan(std::int64_t slots, std::optional<std::uint64_t> most_age);

  std::int64_t slots() const { return static_cast<std::int64_t>(entries_.size()); }
  std::int64_t used() const { return used_; }

  /// Ask for what use() will look at: where it looks first, then what it finds there.
  void prefetch(int table, std::int64_t key) const { __builtin_prefetch(&places_[home(table, key)]); }
  void prefetch_entry(int table, std::int64_t key) const {
    if (const std::uint32_t slot = places_[home(table, key)]; slot != kNone)
      __builtin_prefetch(&entries_[slot], 1);
  }
  /// REQUIRES: steps do not fall; a row is named once a step.
  Place use(int table, std::int64_t key, std::uint64_t step);
  /// As often as use() gave the slot. REQUIRES: it is no kNone.
  void release(std::uint32_t slot) {
    std::atomic_ref(entries_[slot].holders).fetch_sub(1, std::memory_order_release);
  }

  CacheCounts& counts() { return counts_; }
  const CacheCounts& counts() const { return counts_; }

 private:
  struct Entry {
    std::int64_t key = 0;
    std::int32_t table = -1;
    std::uint32_t holders = 0;
    std::uint64_t used = 0, pulled = 0;          // steps
    std::uint32_t newer = kNone, older = kNone;  // by last use
  };

  std::size_t home(int table, std::int64_t key) const {
    return key_hash(key + (std::int64_t{table} << 48)) & (places_.size() - 1);
  }
  std::size_t find(int table, std::int64_t key) const;
  std::uint32_t take_slot();
  void erase(std::size_t at);
  void unlink(std::uint32_t slot);
  void link_newest(std::uint32_t slot);

  std::optional<std::uint64_t> most_age_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> places_;  // slots by hash, linear probing; kNone: free; at most half are taken
  std::uint32_t newest_ = kNone, oldest_ = kNone;
  std::int64_t used_ = 0;
  CacheCounts counts_;
};

}  // namespace braid::ps
