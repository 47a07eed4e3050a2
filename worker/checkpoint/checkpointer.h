// Saves and restores a job at a step boundary: local variables and slots in the leader's shard, what servers
// hold in theirs (through the strategy), the step, and the input cursor of the last consumed batch. Nothing
// is visible before the manifest is. Thread rule: one thread, no step in flight.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "base/checkpoint.h"
#include "base/wait_context.h"
#include "engine/exec/runtime.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {

/// The attribute of a run's last checkpoint where another step than the last one ended it: it had what it
/// wanted, or its input has ended.
inline constexpr const char* kEndedEarly = "ended_early";

class Checkpointer {
 public:
  /// `run`: whose checkpoints are written, read and counted.
  Checkpointer(std::filesystem::path directory, CheckpointRun run, std::size_t keep, std::string job_name,
               std::uint64_t plan_hash, Runtime& runtime, Strategy& strategy);

  /// `step` is the number of steps whose updates are in the variables. Throws: Unavailable (disk), Internal
  /// (poisoned variables).
  void save(std::uint64_t step, const std::string& cursor, const std::map<std::string, double>& metrics,
            const std::map<std::string, std::string>& attributes, const WaitContext& wait);

  /// Beside the newest ones, `count` with the best `metric` in their manifest stay.
  void keep_best(std::size_t count, std::string metric, bool higher_is_better);

  /// Of the run's checkpoint of that step; empty where there is none.
  std::filesystem::path directory_of(std::uint64_t step) const;

  /// The run's newest checkpoint whose every block matches its CRC, if any. Each damaged one is left out with
  /// a warning.
  std::optional<CheckpointInfo> newest() const;

  /// Fills the store's variables, whichever strategy has written them. A slot that is not there keeps its
  /// initial value, as do rows of a table of which only those that were touched are stored. `former_names`:
  /// those of variables of the graph, by their names; slots follow their variable. Result: those that are not
  /// there. Throws: InvalidArgument (a variable has another type or shape), DataLoss.
  std::vector<std::string> restore_local(const CheckpointInfo& info,
                                         const std::map<std::string, std::string>& former_names = {});

 private:
  CheckpointInfo write(const std::filesystem::path& temporary, std::uint64_t step, const std::string& cursor,
                       const std::map<std::string, double>& metrics,
                       const std::map<std::string, std::string>& attributes, const WaitContext& wait);
  std::vector<std::int64_t> whole_dims(const std::string& name) const;
  void prune();
  std::vector<std::string> own_variables() const;  // those that its shard has

  CheckpointStore store_;
  CheckpointRun run_;
  std::size_t keep_;
  std::size_t keep_best_ = 0;
  std::string metric_;
  bool higher_is_better_ = true;
  std::string job_name_;
  std::uint64_t plan_hash_;
  Runtime& runtime_;
  Strategy& strategy_;
};

}  // namespace braid::worker
