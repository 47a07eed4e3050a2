// A job for a graph and a file of data: `braid train --graph model.pb --loss loss:0 --data FILE`. Columns of
// the file go to the placeholders of their names; what is left goes by type and number. Thread rule: pure,
// but for the files that it reads.
#pragma once

#include <string>

#include "cli/graph_model_flags.h"

namespace braid::cli {

struct GraphJobFlags {
  GraphModelFlags graph;
  std::string data, test;
  std::string label;       // NAME, or NAME=VALUE as in `braid init`
  std::int64_t batch = 0;  // 0: by the number of rows
};

/// The job as text protobuf, with a comment that says what was found. Throws: InvalidArgument.
std::string graph_job_text(const GraphJobFlags& flags);

}  // namespace braid::cli
