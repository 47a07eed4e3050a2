#include "worker/watch/step_log.h"

#include <fmt/core.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"

namespace braid::worker {

std::string with_role(std::string pattern, const std::string& role) {
  for (std::size_t at; (at = pattern.find("%r")) != std::string::npos;) pattern.replace(at, 2, role);
  return pattern;
}

StepLog::StepLog(const std::string& path, bool goes_on)
    : path_(path), goes_on_(goes_on), file_(nullptr, std::fclose) {
  if (path.empty()) return;
  file_.reset(std::fopen(path.c_str(), goes_on ? "a" : "w"));
  if (!file_)
    throw InvalidArgument("metrics.steps_file: cannot write '" + path + "': " + std::strerror(errno));
}

StepLog::~StepLog() { flush(); }

void StepLog::flush() {
  flushed_ = std::chrono::steady_clock::now();
  if (file_ && std::fflush(file_.get()) != 0) give_up(last_ + 1);
}

void StepLog::begin(std::uint64_t first) {
  if (!file_ || !goes_on_) return;
  std::string kept;
  const std::string text = read_file(path_);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    // A step's line is of the step that made it; an evaluation's of the steps before it.
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_unsigned()) continue;
    const auto step = json["step"].get<std::uint64_t>();
    if (json.contains("loss") ? step < first : step <= first) kept += line + "\n";
  }
  if (kept == text) return;
  write_file_atomically(path_, kept);
  file_.reset(std::fopen(path_.c_str(), "a"));
}

void StepLog::write(std::uint64_t step, float loss, std::int64_t examples, double seconds, bool skipped,
                    std::optional<std::int64_t> dropped) {
  if (!file_) return;
  const std::string number = std::isfinite(loss) ? fmt::format("{:.9g}", loss) : "null";  // as JSON has it
  add(fmt::format("{{\"step\":{},\"loss\":{},\"examples\":{},\"seconds\":{:.9f}{}{}}}\n", step, number,
                  examples, seconds, skipped ? ",\"skipped\":true" : "",
                  dropped ? fmt::format(",\"dropped\":{}", *dropped) : ""),
      step);
}

void StepLog::write_evaluation(std::uint64_t step, const std::string& measured) {
  if (!file_) return;
  add(fmt::format("{{\"step\":{},\"evaluation\":{}}}\n", step, measured), step);
  flush();  // a reader sees it at once
}

void StepLog::add(const std::string& line, std::uint64_t step) {
  last_ = step;
  if (std::fputs(line.c_str(), file_.get()) < 0) return give_up(step);
  if (std::chrono::steady_clock::now() - flushed_ >= std::chrono::seconds(1)) flush();
}

void StepLog::give_up(std::uint64_t step) {
  log_warning("metrics.steps_file: cannot write '{}': {}; it ends before step {}", path_,
              std::strerror(errno), step);
  file_.reset();
}

}  // namespace braid::worker
