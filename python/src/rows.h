// Rows that Python holds: of arrays, or of a job's files.
#pragma once

#include <memory>
#include <string>

#include "engine/input/schema/table.h"
#include "proto/job.pb.h"

namespace braid::python {

struct Rows {
  std::shared_ptr<const Table> table;
};

/// Throws: InvalidArgument where the text is no job.
proto::Job job_of(const std::string& text);

}  // namespace braid::python
