#include "worker/metrics/metrics_json.h"

#include <nlohmann/json.hpp>

namespace braid::worker {

std::string metrics_json(const MetricValues& measured) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (const auto& [name, value] : measured.values) out[name] = value;
  for (const auto& [task, values] : measured.tasks)
    for (const auto& [name, value] : values) out[name + "_of_tasks"][task] = value;
  return out.dump();
}

}  // namespace braid::worker
