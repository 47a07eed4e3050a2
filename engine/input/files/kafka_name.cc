#include <algorithm>

#include "base/error.h"
#include "engine/input/files/kafka.h"

namespace braid {
namespace {

constexpr std::string_view kScheme = "kafka://";

bool is_topic(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

}  // namespace

bool is_kafka(std::string_view name) { return name.starts_with(kScheme); }

KafkaName kafka_name(std::string_view name) {
  const std::string_view rest = name.substr(kScheme.size());
  if (rest.find('@') != std::string_view::npos)
    throw InvalidArgument(
        "kafka://: names have no credentials in them: those stand in the file that BRAID_KAFKA_CONFIG names");
  const std::size_t slash = rest.find('/');
  if (slash == 0 || slash == std::string_view::npos)
    throw InvalidArgument("'" + std::string(name) +
                          "' names no brokers and topic: kafka://HOST:9092,OTHER:9092/TOPIC");
  KafkaName parts{std::string(rest.substr(0, slash)), {}};
  for (std::string_view left = rest.substr(slash + 1);;) {
    const std::size_t comma = left.find(',');
    const std::string_view topic = left.substr(0, comma);
    if (!is_topic(topic))
      throw InvalidArgument("'" + std::string(name) + "': '" + std::string(topic) +
                            "' is no name of a topic: letters, digits, '.', '_' and '-'");
    if (std::ranges::find(parts.topics, topic) != parts.topics.end())
      throw InvalidArgument("'" + std::string(name) + "' names topic '" + std::string(topic) + "' twice");
    parts.topics.emplace_back(topic);
    if (comma == std::string_view::npos) return parts;
    left.remove_prefix(comma + 1);
  }
}

std::string text_of(const KafkaPartition& partition) {
  return partition.topic + "[" + std::to_string(partition.number) + "]";
}

}  // namespace braid
