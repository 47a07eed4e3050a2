// What a job's `input` says -> tables in memory, or streams, and the batches of this worker. Which files are
// meant is in input_files.h, their formats in open_rows.h.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/input/formats/readers.h"
#include "engine/input/schema/table.h"
#include "engine/input/stream/block_source.h"
#include "worker/input/followed_input.h"
#include "worker/watch/progress.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

class TakenBatches;

struct JobData {
  /// Where rows are streamed: the columns, with rows_of_all, but without rows.
  std::shared_ptr<const Table> train;
  std::shared_ptr<BlockSource> stream = {};  // null: the rows are in `train`
  FollowedInput followed = {};               // with files: they are the stream's, and grow
  std::shared_ptr<const Table> test = {};    // null: no test files
  /// Opens the test rows, where they are streamed: `test` has the columns then. Empty: they are there.
  std::function<std::unique_ptr<RowStream>()> open_test = {};
};

/// The test rows, one table after the other, for batches of `batch_rows`; then null. REQUIRES: data.test;
/// `data` outlives it.
std::function<std::shared_ptr<const Table>()> next_test_rows(const JobData& data, std::int64_t batch_rows);

/// Test rows of which a rank has some batches, by the numbers of tables or of batches in one.
struct TestShare {
  std::shared_ptr<const Table> table;  // null: there are no more
  std::int64_t first_batch = 0;        // of all test rows
  bool is_whole = false;               // all its batches are this rank's; else every world-th
};
/// The same for one of several ranks that share the test rows: of streamed ones it reads its own.
std::function<TestShare()> next_test_share(const JobData& data, std::int64_t batch_rows, int rank, int world);

/// This worker's batches. `taken`: of input.shard DYNAMIC, it says which rows are worth reading ahead, and
/// outlives the batches; null: all are. Throws: as Batcher.
std::unique_ptr<Batcher> make_batcher(const proto::Job& job, const JobData& data,
                                      const std::vector<std::string>& columns, const BatchOptions& options,
                                      const TakenBatches* taken = nullptr);

/// Which worker of how many reads.
struct DataShard {
  int rank = 0;
  int world = 1;
};

/// Reads the files under `data_dir`: of the training files what input.shard gives this worker. `progress`:
/// how it shows that. `follow`: the files of a job with input.follow grow; without it they are those that are
/// there now. Throws: InvalidArgument, DataLoss (file, line, reason).
JobData load_data(const proto::Job& job, const std::filesystem::path& data_dir, bool with_test,
                  const DataShard& shard = {}, ProgressMode progress = ProgressMode::Off,
                  const FollowRun* follow = nullptr);

/// The vocabulary of the schema's classes that become column `label`; empty where there is none.
std::vector<std::string> class_words(const proto::Job& job, const std::filesystem::path& data_dir,
                                     const std::string& label);

/// Steps of the whole job: `steps`, or `epochs` times the batches of an epoch. `table`: JobData::train.
std::uint64_t total_steps(const proto::Job& job, const Table& table);

}  // namespace braid::worker
