// What this process takes of its machine, as /proc tells it. Thread rule: pure functions, safe from any
// thread.
#pragma once

#include "base/metrics.h"
#include "watch/status.h"

namespace braid::worker {

/// Totals; cores_used is for watch::set_rates().
watch::ProcessUse process_use();
/// The metrics that Prometheus' client libraries have for every process: process_cpu_seconds_total and
/// others.
void publish_process(MetricsRegistry& registry);

}  // namespace braid::worker
