#include "launch/host_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "base/error.h"
#include "launch/environment.h"

namespace braid::launch {
namespace {

constexpr int kMostSlots = 1024;
constexpr std::string_view kNameCharacters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";

Host parse_line(std::istringstream& words, const std::string& where) {
  Host host;
  words >> host.name;
  // ssh would take a name that begins with a dash for an option.
  if (host.name.find_first_not_of(kNameCharacters) != std::string::npos || host.name.starts_with('-'))
    throw InvalidArgument(fmt::format("[launch] {}: '{}' is no host's name", where, host.name));
  for (std::string word; words >> word;) {
    const auto slots =
        word.starts_with("slots=") ? parse_count(std::string_view(word).substr(6), 1) : std::nullopt;
    if (!slots || *slots > kMostSlots)
      throw InvalidArgument(
          fmt::format("[launch] {}: expected slots=N after the host, with N from 1 to {}, "
                      "got '{}'",
                      where, kMostSlots, word));
    host.slots = *slots;
  }
  return host;
}

}  // namespace

std::vector<Host> parse_host_file(std::string_view text, const std::string& source) {
  std::vector<Host> hosts;
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    line.resize(std::min(line.size(), line.find('#')));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = fmt::format("{}:{}", source, number);
    std::istringstream words(line);
    Host host = parse_line(words, where);
    const auto same = [&](const Host& other) { return other.name == host.name; };
    if (std::any_of(hosts.begin(), hosts.end(), same))
      throw InvalidArgument(fmt::format("[launch] {}: host '{}' is listed twice", where, host.name));
    hosts.push_back(std::move(host));
  }
  if (hosts.empty()) throw InvalidArgument(fmt::format("[launch] {}: no host is listed", source));
  return hosts;
}

Placement place_tasks(const std::vector<Host>& hosts, const TaskCounts& counts, int first_port) {
  std::vector<std::string> places;  // of the chief and the workers
  for (const Host& host : hosts) places.insert(places.end(), static_cast<std::size_t>(host.slots), host.name);
  const int leaders = counts.with_chief ? 1 : 0;
  if (static_cast<std::size_t>(counts.workers + leaders) > places.size())
    throw InvalidArgument(fmt::format("[launch] the hosts have {} slots, fewer than {} workers{}",
                                      places.size(), counts.workers, leaders ? " and a chief" : ""));
  Placement placed;
  std::map<std::string, int> used;
  const auto add = [&](TaskType type, int index, const std::string& host) {
    placed.cluster.job(type)[index] = fmt::format("{}:{}", host, first_port + used[host]++);
    placed.host_of[{type, index}] = host;
  };
  if (counts.with_chief) add(TaskType::Chief, 0, places.front());
  for (int i = 0; i < counts.workers; ++i)
    add(TaskType::Worker, i, places[static_cast<std::size_t>(i + leaders)]);
  for (int i = 0; i < counts.servers; ++i)
    add(TaskType::Ps, i, hosts[static_cast<std::size_t>(i) % hosts.size()].name);
  if (counts.evaluators > 0) add(TaskType::Evaluator, 0, hosts.front().name);
  return placed;
}

}  // namespace braid::launch
