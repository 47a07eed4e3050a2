#include "launch/job_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "base/error.h"
#include "base/files.h"

namespace braid::launch {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view kResult = "result: ";

/// What a worker says of its training; nothing for other programs' lines.
std::optional<Json> training_result(const std::string& line) {
  Json json = Json::parse(line, nullptr, false);
  for (const char* needed : {"steps", "last_step", "loss", "examples_per_second", "seconds"})
    if (!json.is_object() || !json.contains(needed) || !(json[needed].is_number() || json[needed].is_null()))
      return std::nullopt;
  return json;
}

double number(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_number() ? found->get<double>() : 0;
}

}  // namespace

JobResults::~JobResults() {
  std::error_code ignored;
  if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
}

void JobResults::add(const Task& task, std::string_view line) {
  if (line.starts_with(kResult)) lines_[task] = line.substr(kResult.size());
}

std::string JobResults::own_file() {
  if (directory_.empty()) {
    std::string made = (std::filesystem::temp_directory_path() / "braid-launch-XXXXXX").string();
    if (::mkdtemp(made.data()) == nullptr)
      throw Unavailable(fmt::format("[launch] cannot make '{}': {}", made, std::strerror(errno)));
    directory_ = made;
  }
  return (directory_ / "result").string();
}

std::vector<std::string> JobResults::last_lines(const Task& leader, const std::string& held) {
  std::string line = held;
  std::error_code none;
  if (!directory_.empty() && std::filesystem::exists(directory_ / "result", none)) {
    line = std::string(kResult) + read_file(directory_ / "result");
    add(leader, line);
  }
  std::vector<std::string> all = table();
  if (!all.empty() && lines_.contains(leader)) line = job_line(leader);
  if (!line.empty()) all.push_back(std::move(line));
  return all;
}

std::vector<std::string> JobResults::table() const {
  std::vector<std::string> rows{fmt::format("{:<12} {:>5} {:>9} {:>11} {:>9} {:>9} {:>12}", "task", "exit",
                                            "steps", "loss", "seconds", "steps/s", "input wait")};
  int trained = 0;
  for (const auto& [task, status] : statuses_) {
    const auto line = lines_.find(task);
    const std::optional<Json> said = line == lines_.end() ? std::nullopt : training_result(line->second);
    std::string row = fmt::format("{:<12} {:>5}", task_name(task), status.code);
    if (said) {
      ++trained;
      const double seconds = number(*said, "seconds"), steps = number(*said, "steps");
      const double most = std::max(seconds, 1e-9);
      row += fmt::format(" {:>9.0f} {:>11.6g} {:>9.2f} {:>9.1f} {:>10.1f} %", steps, number(*said, "loss"),
                         seconds, steps / most, 100 * number(*said, "input_wait_seconds") / most);
    }
    rows.push_back(std::move(row));
  }
  return trained < 2 ? std::vector<std::string>{} : rows;
}

std::string JobResults::job_line(const Task& leader) const {
  Json job = Json::parse(lines_.at(leader), nullptr, false);
  if (!job.is_object()) return std::string(kResult) + lines_.at(leader);
  Json tasks = Json::array();
  for (const auto& [task, text] : lines_) {
    const std::optional<Json> said = training_result(text);
    if (!said) continue;
    Json one{{"task", task_name(task)}};
    for (const char* name : {"steps", "last_step", "loss", "seconds", "input_wait_seconds", "exit"})
      if (said->contains(name)) one[name] = (*said)[name];
    tasks.push_back(std::move(one));
  }
  job["tasks"] = std::move(tasks);
  return std::string(kResult) + job.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace braid::launch
