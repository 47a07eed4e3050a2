// The rows of files of a job's format: which reader of engine/input they have, and with which settings of the
// job. Thread rule: a stream has one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/input/formats/readers.h"
#include "engine/input/schema/table.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

/// The rows of `files`, which are of the job's format; `option` stands in errors for where they are named.
/// `data_dir`: of vocabularies. REQUIRES: reads_files(job).
std::unique_ptr<RowStream> open_rows(const proto::Job& job, const std::filesystem::path& data_dir,
                                     const std::string& option,
                                     const std::vector<std::filesystem::path>& files,
                                     const ReadOptions& read);
/// A table of the columns that these files have for the model, without rows: of IDX their shapes are known
/// from a file, else from the schema.
std::shared_ptr<const Table> empty_rows(const proto::Job& job, const std::filesystem::path& data_dir,
                                        const std::vector<std::filesystem::path>& files);
/// How many rows are worth reading at a time for batches of `batch_rows`: some of these.
std::int64_t rows_at_once(std::int64_t batch_rows);

}  // namespace braid::worker
