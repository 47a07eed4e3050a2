#include "worker/watch/stage_metrics.h"

#include <mutex>

#include "base/error.h"

namespace braid::worker {

struct StageMetrics::Source {
  Source(MetricsRegistry& r, const Stage& s) : registry(r), stage(&s), name(s.options().name) {}

  void collect() {
    std::lock_guard lock(mu);
    if (!stage) return;
    const StageStats stats = stage->stats();
    const MetricLabels labels{{"stage", name}};
    const auto gauge = [&](const char* metric, const char* help, double value) {
      registry.gauge(metric, help, labels).set(value);
    };
    const auto counter = [&](const char* metric, const char* help, double total, const MetricLabels& of) {
      Counter& c = registry.counter(metric, help, of);
      if (const double behind = total - c.value(); behind > 0) c.add(behind);
    };
    gauge("braid_stage_ready_batches", "Batches that wait to be taken.", stats.ready);
    gauge("braid_stage_occupancy_ratio", "Mean part of the capacity that was in use.",
          stats.occupancy / stats.capacity);
    gauge("braid_stage_capacity_batches", "Batches that may wait; what AUTO has chosen so far.",
          stats.capacity);
    gauge("braid_stage_threads", "Threads that make batches; what AUTO has chosen so far.",
          stats.num_threads);
    counter("braid_stage_batches_total", "Batches that were taken.", static_cast<double>(stats.taken),
            labels);
    counter("braid_stage_late_takes_total", "Takes that had to wait for their batch.",
            static_cast<double>(stats.late_takes), labels);
    counter("braid_stage_take_wait_seconds_total", "Time in which takers waited for a batch.",
            stats.take_wait_seconds, labels);
    counter("braid_stage_dropped_total", "Batches that were dropped because they found no room in time.",
            static_cast<double>(stats.dropped), labels);
    for (std::size_t t = 0; t < stats.threads.size(); ++t) {
      const MetricLabels of{{"stage", name}, {"thread", std::to_string(t)}};
      counter("braid_stage_busy_seconds_total", "Time in which the thread made batches.",
              stats.threads[t].busy_seconds, of);
      counter("braid_stage_room_wait_seconds_total", "Time in which the thread waited for room.",
              stats.threads[t].wait_seconds, of);
      counter("braid_stage_errors_total", "Errors of the thread, ignored ones and its end among them.",
              static_cast<double>(stats.threads[t].errors), of);
    }
    for (const auto& [code, count] : stats.ignored)
      counter("braid_stage_ignored_errors_total",
              "Records that were left out because of an error, by its kind.", static_cast<double>(count),
              {{"stage", name}, {"kind", std::string(error_code_name(code))}});
  }

  MetricsRegistry& registry;
  std::mutex mu;
  const Stage* stage;  // guarded by mu; null once it is gone
  const std::string name;
};

StageMetrics::StageMetrics(MetricsRegistry& registry, const Stage& stage)
    : source_(std::make_shared<Source>(registry, stage)) {
  registry.on_collect([source = source_] { source->collect(); });
}

StageMetrics::~StageMetrics() {
  source_->collect();
  std::lock_guard lock(source_->mu);
  source_->stage = nullptr;
}

}  // namespace braid::worker
