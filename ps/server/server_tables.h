// The tables of one server: its ranges of the dense tables and its keys of the sparse ones, and what an
// table thread does with its own part of them. A std::uint32_t is a table's place among the dense or the
// sparse ones of the set, as in requests; TableId is its place among all.
//
// Thread rule: calls with `thread` are made by that table thread (or by the one thread that builds the
// object before anybody else has it); the rest reads what is fixed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ps/buffer_pool.h"
#include "ps/server/requests.h"
#include "ps/server/rounds.h"
#include "ps/shard_plan.h"
#include "ps/table/dense_table.h"
#include "ps/table/sparse_table.h"

namespace braid::ps {

/// A pull under way: dense blocks held as they are, sparse rows copied.
struct PullWork {
  std::vector<std::vector<std::optional<FloatRun::ReadHold>>> dense;  // [part][block]
  std::vector<std::span<float>> sparse;                               // [part]: [keys, dim]; not of a repair
  std::shared_ptr<std::byte> rows;                                    // memory of `sparse`
};

/// A pull ahead that its repair will name: the keys, and how far the tables were when its rows were read.
struct PulledAhead {
  std::shared_ptr<const PullJob> pull;
  std::vector<std::uint64_t> rounds;  // [part] handed to the table threads before
};

/// A repair under way: each table thread's share, of all parts.
struct RepairWork {
  struct Share {
    std::vector<std::uint32_t> where;
    std::vector<float> rows;
  };
  std::vector<Share> shares;  // [thread]
};

class ServerTables {
 public:
  ServerTables(const TableSet& set, int server, int servers, int threads);

  const TableSet& set() const { return set_; }
  const ShardPlan& plan() const { return plan_; }
  int server() const { return server_; }
  std::size_t dense_tables() const { return dense_.size(); }
  std::size_t tables() const { return dense_.size() + sparse_.size(); }

  TableId dense_id(std::uint32_t dense) const { return static_cast<TableId>(dense); }
  TableId sparse_id(std::uint32_t sparse) const {
    return static_cast<TableId>(set_.dense.size() + std::size_t{sparse});
  }
  /// All tables, in the order of their ids.
  std::vector<TableId> ids() const;
  /// Those that a request names: its dense ones, then its sparse ones.
  std::vector<TableId> ids_of(const PushJob& job) const;
  std::vector<TableId> ids_of(const PullJob& job) const;

  const std::string& name(TableId table) const;
  const OptimizerSpec& optimizer_of(TableId table) const;
  /// False for a dense table without elements here: no push of it comes.
  bool present(TableId table) const;
  /// This server's range of a dense table; count 0 when it holds none.
  DenseRange range(std::uint32_t dense) const { return plan_.range(static_cast<int>(dense), server_); }
  std::int64_t dim(std::uint32_t sparse) const { return set_.sparse[sparse].dim; }

  /// Throws: InvalidArgument when a part names no table of this server or has the wrong size.
  void check(const std::vector<DensePart>& dense,
             const std::vector<SparsePart>& sparse) const;  // a table once
  void check_pull(const PullJob& job) const;
  void check_written(const std::vector<SparsePart>& rows) const;

  PullWork begin_pull(const PullJob& job, BufferPool& pool) const;
  /// Result: rows made.
  std::int64_t pull(int thread, const PullJob& job, PullWork& work);
  std::int64_t repair(int thread, const PulledAhead& ahead, std::uint64_t step, RepairWork& work);
  std::int64_t changed(int thread, const PullJob& job, RepairWork& work);
  std::int64_t apply(int thread, const ReadyRound& round);
  /// One push on its own.
  std::int64_t apply(int thread, const PushJob& push);
  void assign(int thread, const DensePart& part);
  /// Rows of a worker that was their home. Result: rows made.
  std::int64_t write(int thread, const SparsePart& part);

  /// Null when this server holds nothing of it.
  DenseTable* dense(std::uint32_t dense) const { return dense_[dense].get(); }
  SparseTable& sparse(std::uint32_t sparse, int thread) {
    return sparse_[sparse][static_cast<std::size_t>(thread)];
  }
  bool owns_block(int thread, std::uint32_t dense, std::int64_t block) const {
    return (dense + static_cast<std::uint64_t>(block)) % static_cast<std::uint64_t>(threads_) ==
           static_cast<std::uint64_t>(thread);
  }
  int threads() const { return threads_; }

 private:
  void check_part(const SparsePart& part, bool slots = false) const;
  /// Floats of a row of the table that a pull gets.
  std::size_t width(std::uint32_t sparse, bool slots) const { return sparse_[sparse][0].floats(slots); }
  /// The positions of the keys that are this thread's. Throws: InvalidArgument for keys out of order.
  void positions_of(int thread, const SparsePart& part, std::vector<std::uint32_t>& out) const;

  TableSet set_;
  ShardPlan plan_;
  int server_;
  int threads_;
  std::vector<std::unique_ptr<DenseTable>> dense_;
  std::vector<std::vector<SparseTable>> sparse_;  // [table][thread]
};

}  // namespace braid::ps
