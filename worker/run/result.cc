#include "worker/run/result.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "proto/job.pb.h"
#include "worker/metrics/metrics_json.h"

namespace braid::worker {

std::string TrainResult::to_json() const {
  nlohmann::ordered_json out;
  out["job"] = job;
  out["steps"] = steps;
  out["last_step"] = last_step;
  out["loss"] = loss;
  if (measured) out.update(nlohmann::ordered_json::parse(metrics_json(*measured)));
  if (best) {
    out["best"] = {{"step", best->step}, {"metric", best->metric}, {"value", best->value}};
    if (!best->checkpoint.empty()) out["best"]["checkpoint"] = best->checkpoint;
  }
  if (skipped_steps) out["skipped_steps"] = *skipped_steps;
  if (dropped_tokens) out["dropped_tokens"] = *dropped_tokens;
  if (!stopped_early.empty()) out["stopped_early"] = stopped_early;
  out["examples"] = examples;
  out["examples_per_second"] = seconds > 0 ? static_cast<double>(examples) / seconds : 0.0;
  out["seconds"] = seconds;
  out["input_wait_seconds"] = input_wait_seconds;
  if (padding_share) out["padding_share"] = *padding_share;
  out["exit"] = exit;
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

TrainResult stopped_before_steps(const proto::Job& job, const Error& error) {
  log_info("asked to stop before the first step; nothing to save: {}", error.message());
  TrainResult result;
  result.job = job.name();
  result.exit = kExitTerminated;
  return result;
}

TrainResult never_taken_in(const proto::Job& job) {
  log_info("the job has ended without this worker");
  TrainResult result;
  result.job = job.name();
  return result;
}

}  // namespace braid::worker
