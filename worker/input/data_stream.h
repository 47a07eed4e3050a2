// Which of a job's files are read while their rows are used, and how: input.read and input.stream -> block
// sources. Thread rule: pure functions of the job and the files.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "engine/input/files/kafka.h"
#include "engine/input/stream/block_source.h"
#include "engine/input/stream/followed_rows.h"
#include "engine/input/stream/streamed_rows.h"
#include "worker/watch/progress.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

/// Whether the rows of these files, which `field` names, are streamed: what input.read says, or their size.
bool is_streamed(const proto::Job& job, const char* field, const std::vector<std::filesystem::path>& files);

/// Indexes the files, where they have no index, and says so in the log of who shows progress. Throws:
/// InvalidArgument, DataLoss (file and place).
std::shared_ptr<BlockSource> open_blocks(const proto::Job& job, const std::filesystem::path& data_dir,
                                         const std::vector<std::filesystem::path>& files,
                                         ProgressMode progress);

/// Of one file, which may have no rows. Throws: DataLoss (file and place).
std::shared_ptr<BlockSource> open_file_blocks(const proto::Job& job, const std::filesystem::path& data_dir,
                                              const std::filesystem::path& file,
                                              std::shared_ptr<FileReads> reads);

/// Of the values of Kafka's records; "files" are spans of them (engine/input/stream/kafka_records.h).
OpenBlocks kafka_blocks(const proto::Job& job, const std::filesystem::path& data_dir,
                        std::shared_ptr<KafkaLog> log);

/// How streams of these files read them: what input.stream.direct_reads says, or their size.
std::shared_ptr<FileReads> file_reads(const proto::Job& job, const std::vector<std::filesystem::path>& files);

StreamedRowsOptions streamed_rows_options(const proto::Job& job);
/// Of streamed rows, that a worker takes at a time (input.shard DYNAMIC), about.
std::int64_t rows_of_unit(const proto::Job& job);

}  // namespace braid::worker
