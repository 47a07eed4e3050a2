// Which server holds which elements of the dense tables. A pure function of (TableSet, number of servers),
// computed alike by clients and servers, so it never travels.
//
// A table of at least kSplitElements elements a server is cut into one near-equal range for each server, so a
// push of it keeps all servers busy. The smaller tables are laid end to end and that line is cut into
// near-equal parts. So a server has at most one range of a table, and the largest load is within 1.05 of the
// mean (one element for sets of few elements). Sparse keys go by key_hash.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ps/table_set.h"

namespace braid::ps {

inline constexpr std::int64_t kSplitElements = 4096;

/// Elements [begin, begin + count) of a table on one server. count >= 1.
struct DenseRange {
  int server = 0;
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

class ShardPlan {
 public:
  /// REQUIRES: servers >= 1.
  ShardPlan(const TableSet& set, int servers);

  int servers() const { return servers_; }
  /// The ranges of a dense table, by rising `begin`; together they are the whole table.
  std::span<const DenseRange> ranges(int table) const { return ranges_[static_cast<std::size_t>(table)]; }
  /// The range of `table` on `server`; count 0 when it has none.
  DenseRange range(int table, int server) const;
  /// Elements of dense tables on a server.
  std::int64_t load(int server) const { return loads_[static_cast<std::size_t>(server)]; }
  /// Largest load over mean load; 1 without dense tables.
  double imbalance() const;

 private:
  void add(int table, const DenseRange& range);

  int servers_;
  std::vector<std::vector<DenseRange>> ranges_;
  std::vector<std::int64_t> loads_;
};

}  // namespace braid::ps
