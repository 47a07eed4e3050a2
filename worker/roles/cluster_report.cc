#include "worker/roles/cluster_report.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "base/cpu.h"
#include "base/env.h"
#include "engine/device/device_health.h"
#include "proto/job.pb.h"
#include "worker/process/device.h"
#include "worker/roles/bootstrap.h"

namespace braid::worker {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kNodes = "/sys/devices/system/node";

std::vector<int> own_cores() {
  cpu_set_t set;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

/// "Mems_allowed_list:\t0-1" of /proc/self/status.
std::string memory_nodes() {
  constexpr std::string_view kField = "Mems_allowed_list:";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(kField)) return line.substr(line.find_first_not_of(" \t", kField.size()));
  return "";
}

/// -1: the system does not know.
int node_of_bus(const std::string& bus_id) {
  std::ifstream in("/sys/bus/pci/devices/" + bus_id + "/numa_node");
  int node = -1;
  return in >> node ? node : -1;
}

Json peers_of(const launch::ClusterSpec& cluster) {
  Json tasks = Json::object();
  for (const launch::Task& task : cluster.tasks())
    tasks[std::string(job_name(task.type))].push_back(cluster.address(task).value_or(""));
  return tasks;
}

}  // namespace

std::vector<int> parse_cpu_list(const std::string& text) {
  std::vector<int> numbers;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t dash = part.find('-');
    const auto first = parse_int(part.substr(0, dash));
    const auto last = dash == std::string::npos ? first : parse_int(part.substr(dash + 1));
    if (!first || !last || *last - *first > 100'000) continue;
    for (auto number = *first; number <= *last; ++number) numbers.push_back(static_cast<int>(number));
  }
  return numbers;
}

std::string format_cpu_list(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i;
    while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[i]);
    if (end > i) text += fmt::format("-{}", numbers[end]);
    i = end + 1;
  }
  return text;
}

std::vector<int> numa_nodes_of(const std::vector<int>& cores, const std::filesystem::path& nodes) {
  std::vector<int> found;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(nodes, none)) {
    const std::string name = entry.path().filename().string();
    const auto number = name.starts_with("node") ? parse_int(name.substr(4)) : std::nullopt;
    std::ifstream in(entry.path() / "cpulist");
    std::string list;
    if (!number || !std::getline(in, list)) continue;
    const std::vector<int> its = parse_cpu_list(list);
    const auto has = [&](int core) { return std::find(its.begin(), its.end(), core) != its.end(); };
    if (std::any_of(cores.begin(), cores.end(), has)) found.push_back(static_cast<int>(*number));
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string cluster_report(const proto::Job& given, const launch::ClusterSpec& cluster) {
  proto::Job job = given;
  check_cluster(job, cluster);
  const bool computes = cluster.task.type != launch::TaskType::Ps;
  if (computes) resolve_device(job, cluster);
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  Json out{{"task", task_name(cluster.task)}, {"leads", cluster.is_leader()}};
  if (cluster.rank) out.update({{"rank", *cluster.rank}, {"world", cluster.world}});
  out.update({{"local_rank", cluster.local_rank},
              {"local_world", cluster.local_world},
              {"source", cluster.source},
              {"tasks", peers_of(cluster)},
              {"host", host.data()}});
  const std::vector<int> cores = own_cores(), nodes = numa_nodes_of(cores, kNodes);
  out.update({{"cores", format_cpu_list(cores)},
              {"usable_cores", usable_cores()},
              {"numa_nodes", format_cpu_list(nodes)},
              {"memory_nodes", memory_nodes()}});
  const std::optional<int> ordinal = computes ? device_ordinal(job, cluster) : std::nullopt;
  out["device"] = ordinal ? fmt::format("cuda:{}", *ordinal) : "cpu";
  const int replicas = computes ? replicas_of_process(job, cluster) : 1;
  for (int replica = 0; replicas > 1 && replica < replicas; ++replica) {
    const std::optional<int> its = device_ordinal(job, cluster, replica);
    out["devices"].push_back(its ? fmt::format("cuda:{}", *its) : fmt::format("cpu:{}", replica));
  }
  if (ordinal) {
    const std::string bus = cuda_bus_id(*ordinal);
    const int node = node_of_bus(bus);
    out.update({{"device_bus_id", bus}, {"device_numa_node", node}});
    if (node >= 0 && !nodes.empty() && std::find(nodes.begin(), nodes.end(), node) == nodes.end())
      out["advice"] = fmt::format(
          "the GPU is at NUMA node {}, and the process on cores of {}: bind it there (mpirun --map-by numa, "
          "srun --gpu-bind=closest, numactl --cpunodebind={})",
          node, format_cpu_list(nodes), node);
  }
  return out.dump(1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace braid::worker
