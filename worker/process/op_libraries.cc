#include "worker/process/op_libraries.h"

#include <fmt/format.h>

#include "base/log.h"
#include "engine/ir/op.h"
#include "engine/ir/op_library.h"
#include "proto/job.pb.h"

namespace braid::worker {

void load_op_library_of_process(const std::string& path) {
  const std::size_t before = loaded_op_libraries().size();
  const std::vector<std::string> ops = load_op_library(path, OpRegistry::global());
  if (loaded_op_libraries().size() > before) log_info("op library {}: {}", path, fmt::join(ops, ", "));
}

void load_op_libraries(const proto::Job& job) {
  for (const std::string& path : job.runtime().op_libraries()) load_op_library_of_process(path);
}

}  // namespace braid::worker
