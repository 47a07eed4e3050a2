// `braid predict`: raw rows in, predictions out: the job's format and schema make of each record what
// training made of it, the checkpoint's variables predict, and every record has a line, in the order of the
// input. What is held in memory does not grow with the files. Thread rule: called from main.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/checkpoint.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

struct PredictCommand {
  std::filesystem::path data_dir;  // of the job's vocabularies
  CheckpointInfo checkpoint;
  std::vector<std::filesystem::path> inputs;
  std::filesystem::path output;  // see PredictionFile; "-": standard output
  std::string key;               // a column of the input; empty: the record's number, from 0
  std::int64_t max_bad_records = 0;
};

/// The exit code. Throws: InvalidArgument (a format without files, an input that lacks a column, a model that
/// the checkpoint does not fit), DataLoss (more bad records than allowed: file, line, reason), what a step
/// throws.
int run_predict(const proto::Job& job, const PredictCommand& command);

}  // namespace braid::worker
