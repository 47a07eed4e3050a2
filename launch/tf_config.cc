#include "launch/tf_config.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"

namespace braid::launch {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse(std::string_view where, std::string_view path, std::string_view reason) {
  throw InvalidArgument(fmt::format("[launch] {} {}: {}", where, path, reason));
}

[[noreturn]] void wrong_type(std::string_view where, std::string_view path, std::string_view expected,
                             const Json& value) {
  refuse(where, path, fmt::format("expected {}, got {}", expected, value.type_name()));
}

/// Watches a parser. JSON leaves open which of two equal keys counts, and readers differ.
class NoKeyTwice {
 public:
  explicit NoKeyTwice(std::string_view where) : where_(where) {}
  bool operator()(int /*depth*/, Json::parse_event_t event, const Json& value) {
    if (event == Json::parse_event_t::object_start) keys_.emplace_back();
    if (event == Json::parse_event_t::object_end) keys_.pop_back();
    if (event == Json::parse_event_t::key && !keys_.back().insert(value.get<std::string>()).second)
      throw InvalidArgument(fmt::format("[launch] {}: the key {} is there twice", where_, value.dump()));
    return true;
  }

 private:
  std::string_view where_;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
};

Json parse_json(std::string_view text, std::string_view where) {
  try {
    return Json::parse(text, NoKeyTwice(where));
  } catch (const Json::parse_error& error) {
    // nlohmann counts the bytes that it read, the offending one included.
    const std::size_t offset = error.byte == 0 ? 0 : error.byte - 1;
    const std::string_view before = text.substr(0, std::min(offset, text.size()));
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    std::string_view reason = error.what();
    if (const std::size_t at = reason.find("syntax error"); at != std::string_view::npos)
      reason.remove_prefix(at);
    throw InvalidArgument(fmt::format("[launch] {}: not valid JSON at byte {} (line {}, column {}): {}",
                                      where, offset, line, before.size() - line_start + 1, reason));
  } catch (const Json::out_of_range& error) {  // a number that no double holds
    throw InvalidArgument(fmt::format("[launch] {}: {}", where, error.what()));
  }
}

int parse_index(const Json& value, std::string_view where, std::string_view path) {
  std::string text;
  if (value.is_number_integer()) {
    text = value.dump();
  } else if (value.is_string()) {
    text = value.get<std::string>();
  } else {
    wrong_type(where, path, "an index", value);
  }
  const std::optional<int> index = parse_count(text, 0);
  if (!index) refuse(where, path, fmt::format("expected an index >= 0, got {}", text));
  return *index;
}

/// Adds every task of `cluster` to `builder`; `path` is the cluster's own.
void add_jobs(const Json& cluster, std::string_view where, std::string_view path,
              ListedClusterBuilder& builder) {
  if (!cluster.is_object()) wrong_type(where, path, "an object of jobs", cluster);
  for (const auto& [name, tasks] : cluster.items()) {
    const std::string job_path = fmt::format("{}.{}", path, name);
    const TaskType type = builder.job(name, fmt::format("{} {}", where, path));
    const auto add = [&](int index, const Json& address, const std::string& task_path) {
      if (!address.is_string()) wrong_type(where, task_path, "an address", address);
      builder.add({type, index}, address.get_ref<const std::string&>(),
                  fmt::format("{} {}", where, task_path));
    };
    if (tasks.is_array()) {
      for (std::size_t i = 0; i < tasks.size(); ++i)
        add(static_cast<int>(i), tasks[i], fmt::format("{}[{}]", job_path, i));
    } else if (tasks.is_object()) {
      // An object without workers is how the operator tells servers that workers come and go.
      if (tasks.empty()) builder.set_partial();
      for (const auto& [index, address] : tasks.items()) {
        const std::string task_path = fmt::format("{}.{}", job_path, index);
        add(parse_index(Json(index), where, task_path), address, task_path);
      }
    } else {
      wrong_type(where, job_path, "a list or an object of addresses", tasks);
    }
  }
}

std::optional<Task> parse_task(const Json& config, std::string_view where) {
  const auto task = config.find("task");
  if (task == config.end()) return std::nullopt;
  if (!task->is_object()) wrong_type(where, "$.task", "an object", *task);
  if (task->empty()) return std::nullopt;
  const auto type = task->find("type");
  if (type == task->end()) refuse(where, "$.task.type", "missing");
  if (!type->is_string()) wrong_type(where, "$.task.type", "a job's name", *type);
  const std::optional<TaskType> known = task_type_from_name(type->get_ref<const std::string&>());
  if (!known)
    refuse(where, "$.task.type",
           fmt::format("unknown type '{}'; known are chief (or master), worker, ps, evaluator",
                       type->get_ref<const std::string&>()));
  const auto index = task->find("index");
  if (index == task->end()) refuse(where, "$.task.index", "missing");
  return Task{*known, parse_index(*index, where, "$.task.index")};
}

/// See the quirk of dynamic workers in the header: gives a lone server listed at 0 the index of the task.
void move_own_server(Json& cluster, const std::optional<Task>& task) {
  if (!task || task->type != TaskType::Ps || !cluster.is_object()) return;
  const auto workers = cluster.find("worker");
  const auto servers = cluster.find("ps");
  if (workers == cluster.end() || !workers->is_object() || !workers->empty()) return;
  if (servers == cluster.end() || !servers->is_array() || servers->size() != 1) return;
  const Json own = servers->front();
  *servers = Json{{std::to_string(task->index), own}};
}

const Json* find_cluster(const Json& config, std::string_view where, std::string& path) {
  const Json* found = nullptr;
  for (const char* key : {"cluster", "sparseCluster"}) {
    const auto entry = config.find(key);
    if (entry == config.end() || (entry->is_object() && entry->empty())) continue;
    if (found != nullptr) refuse(where, "$", "both \"cluster\" and \"sparseCluster\" are given");
    found = &*entry;
    path = fmt::format("$.{}", key);
  }
  return found;
}

}  // namespace

ListedCluster parse_tf_config(std::string_view text) {
  constexpr std::string_view where = "TF_CONFIG";
  if (text.empty()) refuse(where, "is set but empty", "unset it for a run on a single machine");
  const Json config = parse_json(text, where);
  if (!config.is_object()) wrong_type(where, "$", "an object", config);

  ListedClusterBuilder builder{std::string(where)};
  const std::optional<Task> task = parse_task(config, where);
  if (task) builder.set_task(*task);
  std::string path = "$.cluster";
  if (const Json* found = find_cluster(config, where, path)) {
    Json cluster = *found;
    move_own_server(cluster, task);
    add_jobs(cluster, where, path, builder);
  }
  ListedCluster listed = builder.finish(fmt::format("{} {}", where, path));
  if (task && !listed.empty()) check_membership(listed, *task, "TF_CONFIG $.task");
  return listed;
}

ListedCluster parse_cluster_json(std::string_view text, std::string_view where) {
  ListedClusterBuilder builder{std::string(where)};
  add_jobs(parse_json(text, where), where, "$", builder);
  return builder.finish(where);
}

std::string write_tf_config(const ClusterSpec& cluster, const Task& task) {
  Json jobs = Json::object();
  for (const TaskType type : {TaskType::Chief, TaskType::Worker, TaskType::Ps, TaskType::Evaluator}) {
    const ClusterSpec::Job& job = cluster.job(type);
    if (job.empty()) continue;
    Json& tasks = jobs[std::string(job_name(type))];
    for (const auto& [index, address] : job) {
      if (cluster.partial) {
        tasks[std::to_string(index)] = address;
      } else {
        tasks.push_back(address);
      }
    }
  }
  const Json config = {{"cluster", jobs}, {"task", {{"type", job_name(task.type)}, {"index", task.index}}}};
  return config.dump();
}

}  // namespace braid::launch
