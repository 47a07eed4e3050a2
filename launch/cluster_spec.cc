#include "launch/cluster_spec.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "base/error.h"

namespace braid::launch {
namespace {

constexpr std::array kTypes = {TaskType::Chief, TaskType::Worker, TaskType::Ps, TaskType::Evaluator};
constexpr std::size_t kAddressesShown = 4;

std::string describe_job(TaskType type, const ClusterSpec::Job& job) {
  std::string text = fmt::format("{} {}", job.size(), job_name(type));
  std::string shown;
  std::size_t count = 0;
  for (const auto& [index, address] : job) {
    if (address.empty() || count == kAddressesShown) break;
    shown += fmt::format("{}{}", count++ == 0 ? "" : " ", address);
  }
  if (shown.empty()) return text;
  return fmt::format("{} ({}{})", text, shown, count < job.size() ? " ..." : "");
}

}  // namespace

std::string_view job_name(TaskType type) {
  switch (type) {
    case TaskType::Chief:
      return "chief";
    case TaskType::Worker:
      return "worker";
    case TaskType::Ps:
      return "ps";
    case TaskType::Evaluator:
      return "evaluator";
  }
  throw Internal(fmt::format("[launch] task type {}", static_cast<int>(type)));
}

std::optional<TaskType> task_type_from_name(std::string_view name) {
  if (name == "master") return TaskType::Chief;
  const auto found =
      std::find_if(kTypes.begin(), kTypes.end(), [&](TaskType type) { return job_name(type) == name; });
  return found == kTypes.end() ? std::nullopt : std::optional(*found);
}

std::string task_name(const Task& task) { return fmt::format("{} {}", job_name(task.type), task.index); }

const ClusterSpec::Job& ClusterSpec::job(TaskType type) const {
  return const_cast<ClusterSpec*>(this)->job(type);
}

ClusterSpec::Job& ClusterSpec::job(TaskType type) {
  switch (type) {
    case TaskType::Chief:
      return chief;
    case TaskType::Worker:
      return worker;
    case TaskType::Ps:
      return ps;
    case TaskType::Evaluator:
      return evaluator;
  }
  throw Internal(fmt::format("[launch] task type {}", static_cast<int>(type)));
}

std::vector<Task> ClusterSpec::tasks() const {
  std::vector<Task> all;
  for (const TaskType type : kTypes)
    std::transform(job(type).begin(), job(type).end(), std::back_inserter(all), [type](const auto& entry) {
      return Task{type, entry.first};
    });
  return all;
}

std::optional<std::string> ClusterSpec::address(const Task& wanted) const {
  const Job& tasks = job(wanted.type);
  const auto found = tasks.find(wanted.index);
  return found == tasks.end() ? std::nullopt : std::optional(found->second);
}

bool ClusterSpec::addresses_known() const {
  return std::all_of(kTypes.begin(), kTypes.end(), [&](TaskType type) {
    return std::none_of(job(type).begin(), job(type).end(),
                        [](const auto& entry) { return entry.second.empty(); });
  });
}

Task ClusterSpec::leader() const { return {chief.empty() ? TaskType::Worker : TaskType::Chief, 0}; }

bool ClusterSpec::single_machine() const { return !partial && world == 1 && ps.empty() && rank.has_value(); }

std::string ClusterSpec::describe() const {
  std::string text = task_name(task);
  if (is_leader()) text += " (leader)";
  if (rank && partial)
    text += fmt::format(", rank {}", *rank);
  else if (rank)
    text += fmt::format(", rank {} of {}, local rank {} of {}", *rank, world, local_rank, local_world);
  text += "; cluster:";
  const char* separator = " ";
  for (const TaskType type : kTypes) {
    if (job(type).empty()) continue;
    text += separator + describe_job(type, job(type));
    separator = ", ";
  }
  return fmt::format("{}{}; from {}", text, partial ? " (only a part is listed)" : "", source);
}

}  // namespace braid::launch
