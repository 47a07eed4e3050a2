#include "launch/listed_cluster.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/error.h"

namespace braid::launch {
namespace {

[[noreturn]] void refuse(std::string_view where, std::string_view reason) {
  throw InvalidArgument(fmt::format("[launch] {}: {}", where, reason));
}

/// In lower case; absent when it can be no name or IPv4 address.
std::optional<std::string> canonical_name(std::string_view host) {
  std::string name;
  for (const char c : host) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-' && c != '_') return std::nullopt;
    name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return name.empty() ? std::nullopt : std::optional(name);
}

/// "[address]" or "[address%interface]", in the one way to write it; absent when it is none.
std::optional<std::string> canonical_v6(std::string_view host) {
  const std::string_view inner = host.substr(1, host.size() - 2);
  const std::size_t percent = std::min(inner.find('%'), inner.size());
  const std::string text(inner.substr(0, percent));
  in6_addr address{};
  std::array<char, INET6_ADDRSTRLEN> written{};
  if (::inet_pton(AF_INET6, text.c_str(), &address) != 1 ||
      ::inet_ntop(AF_INET6, &address, written.data(), written.size()) == nullptr)
    return std::nullopt;
  if (percent + 1 == inner.size() || inner.find_first_of(" \t\r\n/", percent) != std::string_view::npos)
    return std::nullopt;
  return fmt::format("[{}{}]", written.data(), inner.substr(percent));
}

bool single_task(TaskType type) { return type == TaskType::Chief || type == TaskType::Evaluator; }

}  // namespace

bool ListedCluster::lists(const Task& wanted) const {
  const auto found = jobs.find(wanted.type);
  return found != jobs.end() && found->second.contains(wanted.index);
}

std::string check_address(std::string_view address, std::string_view where) {
  if (address.find("://") != std::string_view::npos)
    refuse(where, fmt::format("address '{}' has a scheme; expected host:port", address));
  const std::size_t colon = address.rfind(':');
  const bool bracketed = address.starts_with('[');
  const std::string_view host = address.substr(0, colon);
  if (colon == std::string_view::npos || (bracketed && !host.ends_with(']')))
    refuse(where, fmt::format("address '{}' has no port; expected host:port", address));
  if (!bracketed && host.find(':') != std::string_view::npos)
    refuse(where, fmt::format("address '{}': an IPv6 host is written [host]:port", address));
  const std::optional<std::string> canonical = bracketed ? canonical_v6(host) : canonical_name(host);
  if (!canonical) refuse(where, fmt::format("address '{}' has no valid host; expected host:port", address));
  const std::optional<int> port = parse_count(address.substr(colon + 1), 1);
  if (!port || *port > 65535)
    refuse(where, fmt::format("address '{}': the port is not in 1..65535", address));
  return fmt::format("{}:{}", *canonical, *port);
}

TaskType ListedClusterBuilder::job(std::string_view name, std::string_view where) {
  const std::optional<TaskType> type = task_type_from_name(name);
  if (!type)
    refuse(where, fmt::format("unknown job '{}'; known are chief (or master), worker, ps, evaluator", name));
  const auto [entry, added] = job_names_.emplace(*type, name);
  if (!added && entry->second != name)
    refuse(where, fmt::format("both '{}' and '{}' are listed; they are one job", entry->second, name));
  return *type;
}

void ListedClusterBuilder::add(const Task& task, std::string_view address, const std::string& where) {
  const auto [place, free] = place_of_address_.emplace(check_address(address, where), where);
  if (!free) refuse(where, fmt::format("address '{}' is also {}", address, place->second));
  ClusterSpec::Job& job = cluster_.jobs[task.type];
  if (!job.emplace(task.index, address).second)
    refuse(where, fmt::format("{} is listed twice", task_name(task)));
  if (single_task(task.type) && job.size() > 1)
    refuse(where, fmt::format("a cluster has at most one {}", job_name(task.type)));
}

ListedCluster ListedClusterBuilder::finish(std::string_view where) {
  const auto& jobs = cluster_.jobs;
  if (!cluster_.partial && jobs.contains(TaskType::Ps) && !jobs.contains(TaskType::Chief) &&
      !jobs.contains(TaskType::Worker))
    refuse(where, "servers are listed, but no worker and no chief");
  for (const TaskType type : {TaskType::Worker, TaskType::Ps}) {
    const auto job = jobs.find(type);
    if (job != jobs.end() && job->second.rbegin()->first != static_cast<int>(job->second.size()) - 1)
      cluster_.partial = true;
  }
  return std::move(cluster_);
}

void check_membership(const ListedCluster& cluster, const Task& task, std::string_view where) {
  if (single_task(task.type) && task.index != 0)
    refuse(where, fmt::format("{}: a cluster has at most one {}", task_name(task), job_name(task.type)));
  if (cluster.lists(task) || cluster.partial || task.type == TaskType::Evaluator) return;
  const auto job = cluster.jobs.find(task.type);
  if (job == cluster.jobs.end())
    refuse(where, fmt::format("{}: the cluster lists no {}", task_name(task), job_name(task.type)));
  refuse(where, fmt::format("{}: the index is out of range, the cluster lists {} of that job",
                            task_name(task), job->second.size()));
}

}  // namespace braid::launch
