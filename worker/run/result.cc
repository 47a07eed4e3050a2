#include "worker/run/result.h"

#include <nlohmann/json.hpp>

namespace braid::worker {

std::string TrainResult::to_json() const {
  nlohmann::ordered_json out;
  out["job"] = job;
  out["steps"] = steps;
  out["last_step"] = last_step;
  out["loss"] = loss;
  if (quality && metric == ModelMetric::Accuracy) out["accuracy"] = *quality;
  if (quality && metric == ModelMetric::Auc) out["auc"] = *quality;
  for (const auto& [task, value] : tasks)
    out[metric == ModelMetric::Accuracy ? "accuracy_of_tasks" : "auc_of_tasks"][task] = value;
  out["examples"] = examples;
  out["examples_per_second"] = seconds > 0 ? static_cast<double>(examples) / seconds : 0.0;
  out["seconds"] = seconds;
  out["input_wait_seconds"] = input_wait_seconds;
  out["exit"] = exit;
  return out.dump();
}

}  // namespace braid::worker
