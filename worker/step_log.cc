#include "worker/step_log.h"

#include <fmt/core.h>

#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/log.h"

namespace braid::worker {

std::string with_role(std::string pattern, const std::string& role) {
  for (std::size_t at; (at = pattern.find("%r")) != std::string::npos;) pattern.replace(at, 2, role);
  return pattern;
}

StepLog::StepLog(const std::string& path) : path_(path), file_(nullptr, std::fclose) {
  if (path.empty()) return;
  file_.reset(std::fopen(path.c_str(), "w"));
  if (!file_)
    throw InvalidArgument("metrics.steps_file: cannot write '" + path + "': " + std::strerror(errno));
}

void StepLog::write(std::uint64_t step, float loss, std::int64_t examples, double seconds, bool skipped) {
  if (!file_) return;
  const std::string number = std::isfinite(loss) ? fmt::format("{:.9g}", loss) : "null";  // as JSON has it
  const std::string line = fmt::format("{{\"step\":{},\"loss\":{},\"examples\":{},\"seconds\":{:.9f}{}}}\n",
                                       step, number, examples, seconds, skipped ? ",\"skipped\":true" : "");
  if (std::fputs(line.c_str(), file_.get()) >= 0) return;
  log_warning("metrics.steps_file: cannot write '{}': {}; it ends before step {}", path_,
              std::strerror(errno), step);
  file_.reset();
}

}  // namespace braid::worker
