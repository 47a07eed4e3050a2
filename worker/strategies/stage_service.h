// The service of a pipeline's ranks, when the leader evaluates or saves. Requests are broadcasts on the job's
// communicator, so they are collectives in one order like those of steps.
//
//   gather   each rank sends the leader the variables that it has, for an evaluation there
//   save     each rank writes its variables and their slots into the checkpoint's directory, which all see,
//            as the file stage-<rank>.shard; the leader's own are in its shard. Ranks of other groups of
//            pipelines have what the leader's group has, and write nothing
//   release  the end
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/exec/runtime.h"
#include "engine/ir/graph.h"
#include "worker/strategies/rank_service.h"

namespace braid::comm {
class Communicator;
}

namespace braid::worker {

/// A variable of the model and the rank that has it.
struct StageVariable {
  VariableInfo info;
  int rank = 0;
};

class StageService : public RankService {
 public:
  /// `variables`: of the model, the same list on all ranks, with ranks below `stages`. `own`: what this rank
  /// writes, if it is one of these. The store has these, and outlives it.
  StageService(std::vector<StageVariable> variables, std::vector<std::string> own, int stages,
               std::shared_ptr<comm::Communicator> communicator, VariableStore& store)
      : variables_(std::move(variables)),
        own_(std::move(own)),
        stages_(stages),
        communicator_(std::move(communicator)),
        store_(store) {}

  /// Whether it is another stage's.
  bool is_elsewhere(const std::string& variable) const;

  // On the leader.
  /// Writes the others' variables into the store, which gets memory for them where their ranks have it.
  void gather(const WaitContext& wait);
  /// The files of the other ranks.
  std::vector<ShardInfo> save(const std::filesystem::path& directory, const WaitContext& wait) override;
  void release(const WaitContext& wait) override;

  // On the others.
  void serve(std::chrono::nanoseconds patience) override;

 private:
  enum class Request : std::int64_t { Gather = 1, Save = 2, Release = 3 };
  Request ask(Request request, const WaitContext& wait);
  void hand_over(const WaitContext& wait);
  std::vector<ShardInfo> write(const std::filesystem::path& directory, const WaitContext& wait);

  const std::vector<StageVariable> variables_;
  const std::vector<std::string> own_;
  const int stages_;
  const std::shared_ptr<comm::Communicator> communicator_;
  VariableStore& store_;
};

}  // namespace braid::worker
