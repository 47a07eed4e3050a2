// What an evaluation found, as fields of a result line. Thread rule: pure function.
#pragma once

#include <string>

#include "worker/metrics/metrics.h"

namespace braid::worker {

/// An object: "auc": 0.77, ... and of a model of several tasks "auc_of_tasks": {"click": 0.79, ...}. What is
/// not defined is null.
std::string metrics_json(const MetricValues& measured);

}  // namespace braid::worker
