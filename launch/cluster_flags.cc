// --cluster and --task.
#include <fmt/core.h>

#include "base/error.h"
#include "launch/listed_cluster.h"
#include "launch/tf_config.h"

namespace braid::launch {
namespace {

/// Cuts the text in front of the next `separator` off `rest`.
std::string_view next_part(std::string_view& rest, char separator) {
  const std::size_t at = rest.find(separator);
  const std::string_view part = rest.substr(0, at);
  rest = at == std::string_view::npos ? std::string_view() : rest.substr(at + 1);
  return part;
}

}  // namespace

ListedCluster parse_cluster_flag(std::string_view text) {
  if (text.starts_with('{')) return parse_cluster_json(text, "--cluster");
  ListedClusterBuilder builder("--cluster");
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view part = next_part(rest, ';');
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos)
      throw InvalidArgument(
          fmt::format("[launch] --cluster: '{}' is not JOB=HOST:PORT,...; jobs are separated by ';'", part));
    const std::string_view name = part.substr(0, equals);
    const TaskType type = builder.job(name, "--cluster");
    std::string_view addresses = part.substr(equals + 1);
    for (int index = 0; !addresses.empty(); ++index)
      builder.add({type, index}, next_part(addresses, ','), fmt::format("--cluster {}[{}]", name, index));
  }
  return builder.finish("--cluster");
}

Task parse_task_flag(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::optional<TaskType> type = task_type_from_name(text.substr(0, colon));
  const std::optional<int> index =
      colon == std::string_view::npos ? std::nullopt : parse_count(text.substr(colon + 1), 0);
  if (!type || !index)
    throw InvalidArgument(fmt::format(
        "[launch] --task: '{}' is not TYPE:INDEX with TYPE chief, worker, ps or evaluator", text));
  return {*type, *index};
}

}  // namespace braid::launch
