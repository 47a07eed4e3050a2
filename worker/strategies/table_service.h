// The service of a HYBRID job's ranks, when the leader evaluates or saves. Requests are broadcasts on the
// job's communicator, so they are collectives in one order like those of steps.
//
//   look_up  the leader's ids go to all; each rank sends the rows that it holds; where all ranks evaluate
//            together each has ids of its own, which go to those that hold their rows, without a request
//   save     each rank writes its rows into the checkpoint's directory, which all see
//   release  the end
//
// Thread rule: one thread at a time, no step in flight; on the leader an evaluation's program may call
// look_up. Throws: what the communicator throws.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/exec/runtime.h"
#include "worker/strategies/rank_service.h"
#include "worker/strategies/table_shard.h"

namespace braid::comm {
class Communicator;
}

namespace braid::worker {

class TableService : public RankService {
 public:
  /// `store` has the ranks' parts under the tables' names, on `device` if that is not null. Both outlive it.
  TableService(std::vector<TableShard> tables, std::shared_ptr<comm::Communicator> communicator,
               VariableStore& store, Accelerator* device)
      : tables_(std::move(tables)), communicator_(std::move(communicator)), store_(store), device_(device) {}

  const std::vector<TableShard>& tables() const { return tables_; }

  /// From now on all ranks look up at the same time, of the same tables in the same order; or the leader
  /// alone does.
  void set_together(bool together) { together_ = together; }

  // On the leader, or together.
  /// rows[k] = row ids[k] of that table, [ids, dim]. Throws also: InvalidArgument for an id that is no row.
  void look_up(int table, std::span<const std::int64_t> ids, float* rows, const WaitContext& wait);

  // On the leader.
  /// The files of all ranks that hold something.
  std::vector<ShardInfo> save(const std::filesystem::path& directory, const WaitContext& wait) override;
  void release(const WaitContext& wait) override;

  // On the others.
  void serve(std::chrono::nanoseconds patience) override;

 private:
  struct Request;
  void ask(Request& request, const WaitContext& wait);
  void look_up_together(const TableShard& table, std::span<const std::int64_t> ids, float* rows,
                        const WaitContext& wait);
  /// This rank's rows of `ids`, one behind the other.
  std::vector<float> own_rows(const TableShard& table, std::span<const std::int64_t> ids) const;
  std::vector<ShardInfo> write(const std::filesystem::path& directory, const WaitContext& wait);
  void answer_look_up(const TableShard& table, std::span<const std::int64_t> ids, const WaitContext& wait);

  const std::vector<TableShard> tables_;
  const std::shared_ptr<comm::Communicator> communicator_;
  VariableStore& store_;
  Accelerator* const device_;
  bool together_ = false;
};

}  // namespace braid::worker
