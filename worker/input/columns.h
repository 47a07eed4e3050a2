// The schema of a job: job.proto's columns -> engine/input's. Thread rule: pure functions of the job and the
// files that it names.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine/input/schema/column_spec.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

/// The schema of a job whose format has one. `data_dir`: of vocabularies and statistics. Throws:
/// InvalidArgument (none; a vocabulary or statistics file: file and reason).
std::vector<ColumnSpec> job_schema(const proto::Job& job, const std::filesystem::path& data_dir);

/// `text` if it is one character, `fallback` if it is empty. Throws: InvalidArgument, naming the field.
char one_character(const std::string& text, const std::string& field, char fallback);

}  // namespace braid::worker
