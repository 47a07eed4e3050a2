// The state of a server's tables at one point of its order of requests, as a checkpoint writes it. Dense
// blocks are held, not copied; sparse rows are copied, each key's values, slots and last use at one instant.
// Thread rule: gather(thread) on each table thread; the rest by the one who asked for the snapshot.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "ps/server/server_tables.h"
#include "ps/server/watermarks.h"

namespace braid::ps {

class Snapshot {
 public:
  Snapshot(std::shared_ptr<ServerTables> tables, std::uint64_t step, std::vector<WorkerMarks> marks);

  void gather(int thread);

  const ServerTables& tables() const { return *tables_; }
  std::uint64_t step() const { return step_; }
  const std::vector<WorkerMarks>& marks() const { return marks_; }

  /// A run of a dense table's range: 0 the values, 1 + k slot k. [range(table).count] f32.
  std::vector<float> dense(std::uint32_t table, int run) const;
  /// The rows of all threads' parts.
  SparseRows sparse(std::uint32_t sparse) const;

 private:
  std::shared_ptr<ServerTables> tables_;
  std::uint64_t step_;
  std::vector<WorkerMarks> marks_;
  std::vector<std::vector<std::vector<std::optional<FloatRun::ReadHold>>>> dense_;  // [table][block][run]
  std::vector<std::vector<SparseRows>> sparse_;                                     // [table][thread]
};

}  // namespace braid::ps
