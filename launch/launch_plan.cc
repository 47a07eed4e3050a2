#include "launch/launch_plan.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/files.h"
#include "base/secret.h"
#include "launch/local_launcher.h"

namespace braid::launch {
namespace {

constexpr int kMostTasks = 1024;  // more is a mistake on one host
constexpr std::chrono::hours kMostGrace{24 * 365};

/// Here, or on the job's hosts.
Placement place(const LocalLaunchOptions& options, const std::vector<std::string>& addresses) {
  const TaskCounts counts{options.workers, options.servers, options.evaluators, options.with_chief};
  if (!options.hosts.empty()) {
    const int port = options.first_port > 0 ? options.first_port : 20000 + (::getpid() * 37) % 8000;
    return place_tasks(options.hosts, counts, port);
  }
  Placement placed = place_tasks({{"127.0.0.1", options.workers + (options.with_chief ? 1 : 0)}}, counts, 1);
  auto address = addresses.begin();
  for (const Task& task : placed.cluster.tasks()) placed.cluster.job(task.type)[task.index] = *address++;
  placed.host_of.clear();
  return placed;
}

/// Of a job whose tasks cannot read this host's files.
std::string token_text(const Environment& environment) {
  if (const std::string* text = find_variable(environment, "BRAID_TOKEN"); text && !text->empty())
    return *text;
  const std::string* file = find_variable(environment, "BRAID_TOKEN_FILE");
  if (file == nullptr || file->empty()) return random_secret();
  const std::string text = read_file(*file);
  return text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
}

/// On the same host, at a port that no task of it has.
std::string page_beside(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  return fmt::format("{}:{}", address.substr(0, colon), std::stoi(address.substr(colon + 1)) + 2000);
}

bool has_token(const Environment& environment) {
  for (const char* name : {"BRAID_TOKEN", "BRAID_TOKEN_FILE"})
    if (const std::string* text = find_variable(environment, name); text != nullptr && !text->empty())
      return true;
  return false;
}

void assign_pages(const LocalLaunchOptions& options, const std::vector<std::string>& addresses,
                  LaunchPlan& plan) {
  const ClusterSpec& cluster = plan.placement.cluster;
  const std::vector<Task> tasks = cluster.tasks();
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    std::string address =
        options.hosts.empty() ? addresses[tasks.size() + i] : page_beside(*cluster.address(tasks[i]));
    if (options.hosts.empty() && tasks[i] == cluster.leader() && options.watch_port > 0)
      address = fmt::format("127.0.0.1:{}", options.watch_port);
    plan.page_list +=
        fmt::format("{}{}:{}={}", i ? "," : "", job_name(tasks[i].type), tasks[i].index, address);
    plan.pages[tasks[i]] = std::move(address);
  }
}

}  // namespace

void check_launch(const LocalLaunchOptions& options) {
  if (options.command.empty()) throw InvalidArgument("[launch] no command to run");
  if (options.workers < 0 || options.servers < 0 || options.evaluators < 0)
    throw InvalidArgument("[launch] the number of tasks must not be negative");
  if (options.workers == 0 && !options.with_chief)
    throw InvalidArgument("[launch] a job needs at least one worker");
  if (std::max({options.workers, options.servers}) > kMostTasks)
    throw InvalidArgument(fmt::format("[launch] at most {} workers and {} servers on one host, got {} and {}",
                                      kMostTasks, kMostTasks, options.workers, options.servers));
  if (options.grace < std::chrono::milliseconds(0) || options.grace > kMostGrace)
    throw InvalidArgument(fmt::format("[launch] the grace period must be from 0 to {} s, got {:g}",
                                      std::chrono::seconds(kMostGrace).count(),
                                      std::chrono::duration<double>(options.grace).count()));
  if (options.evaluators > 1) throw InvalidArgument("[launch] a cluster has at most one evaluator");
}

PortReservation reserve_ports(const LocalLaunchOptions& options) {
  const int tasks = options.workers + options.servers + options.evaluators + (options.with_chief ? 1 : 0);
  return PortReservation(options.hosts.empty() ? (options.watch ? 2 : 1) * tasks : 0);
}

LaunchPlan plan_launch(const LocalLaunchOptions& options, const std::vector<std::string>& addresses) {
  LaunchPlan plan{place(options, addresses), {}, "", ""};
  if (!options.hosts.empty())
    plan.token = token_text(options.environment);
  else if (!has_token(options.environment))
    plan.token = random_secret();
  if (options.watch) assign_pages(options, addresses, plan);
  return plan;
}

}  // namespace braid::launch
