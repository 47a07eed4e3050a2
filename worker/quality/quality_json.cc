#include "worker/quality/quality_json.h"

#include <nlohmann/json.hpp>

namespace braid::worker {

std::string quality_json(const Quality& quality) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (const auto& [name, value] : quality.values) out[name] = value;
  for (const auto& [task, values] : quality.tasks)
    for (const auto& [name, value] : values) out[name + "_of_tasks"][task] = value;
  return out.dump();
}

}  // namespace braid::worker
