// input.follow: training files that appear while the job runs. The leader looks at the directory and opens
// each file first; the other workers hear from it, at the rendezvous, which files come in which order and
// how many rows they have, so that all make the same batches. Thread rule: functions from one thread.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/input/stream/file_feed.h"
#include "engine/input/stream/followed_rows.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

class StopFlag;
struct Peers;

/// The attribute of a checkpoint that has the files that were taken.
inline constexpr const char* kInputFiles = "input_files";

/// Who follows, and what an earlier run had taken. References outlive the data.
struct FollowRun {
  const Peers& peers;
  const StopFlag& stop;
  std::vector<TakenFile> taken = {};
};

struct FollowedInput {
  std::shared_ptr<FileFeed> feed;
  std::shared_ptr<FollowedFiles> files;
};

/// Waits for the first file. Throws: InvalidArgument (no file comes; several workers that have no
/// rendezvous), DataLoss.
FollowedInput follow_input(const proto::Job& job, const std::filesystem::path& data_dir,
                           const FollowRun& run);

FollowedOptions followed_options(const proto::Job& job, const BatchOptions& batches);

/// How long one batch may wait for a file.
std::chrono::nanoseconds follow_time(const proto::Job& job);

}  // namespace braid::worker
