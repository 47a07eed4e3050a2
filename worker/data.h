// What a job's `input` says -> tables in memory. Translates job.proto to engine/input; owns no format.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "engine/input/table.h"
#include "models/model.h"
#include "worker/progress.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

struct JobData {
  std::shared_ptr<const Table> train;
  std::shared_ptr<const Table> test;  // null: no test files
};

/// Which worker of how many reads.
struct DataShard {
  int rank = 0;
  int world = 1;
};

/// Reads the files under `data_dir`: of the training files what input.shard gives this worker. `progress`:
/// how it shows that. Throws: InvalidArgument, DataLoss (file, line, reason).
JobData load_data(const proto::Job& job, const std::filesystem::path& data_dir, bool with_test,
                  const DataShard& shard = {}, ProgressMode progress = ProgressMode::Off);

/// The model's configuration, with the row shapes of the data's columns.
ModelConfig model_config(const proto::Job& job, const Table& table);

/// The job's model for that data. Throws: InvalidArgument (as build_model, or evaluation.metric is another
/// one).
ModelGraph job_model(const proto::Job& job, const Table& table);

/// Steps of the whole job: `steps`, or `epochs` times the batches of an epoch.
std::uint64_t total_steps(const proto::Job& job, const Table& table);

}  // namespace braid::worker
