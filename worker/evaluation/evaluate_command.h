// `braid evaluate`: the metrics of a checkpoint on files. Thread rule: called from main.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/checkpoint.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

struct EvaluateCommand {
  std::filesystem::path data_dir;
  CheckpointInfo checkpoint;
  std::vector<std::filesystem::path> inputs;    // none: the job's test data
  std::optional<std::int64_t> max_bad_records;  // absent: the job's
};

/// Prints a table and the result line; the exit code. Throws: InvalidArgument (no test data, a model that the
/// checkpoint does not fit), DataLoss, what a step throws.
int run_evaluate(const proto::Job& job, const EvaluateCommand& command);

}  // namespace braid::worker
