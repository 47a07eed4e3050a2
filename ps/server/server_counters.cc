#include "ps/server/server_counters.h"

#include <string>
#include <vector>

#include "base/metrics.h"

namespace braid::ps {
namespace {

constexpr auto kCounts = static_cast<std::size_t>(Count::kCount);

struct Description {
  const char* name;    // in statistics
  const char* metric;  // braid_ps_<metric>
  const char* label;   // empty: none
  const char* value;
  const char* help;
};

// In order of Count.
constexpr std::array<Description, kCounts> kDescriptions{{
    {"pushes_applied", "pushes_total", "result", "applied", "Pushes answered, by result."},
    {"pushes_duplicate", "pushes_total", "result", "duplicate", "Pushes answered, by result."},
    {"pushes_dropped", "pushes_total", "result", "dropped", "Pushes answered, by result."},
    {"pushes_stale", "pushes_stale_total", "", "", "Dropped pushes whose step was over."},
    {"requests_refused", "requests_refused_total", "", "", "Requests answered with an error."},
    {"pulls", "pulls_total", "", "", "Pulls received."},
    {"pulls_parked", "pulls_parked_total", "", "", "Pulls that waited for a round or for initial values."},
    {"rounds", "rounds_total", "", "", "Rounds applied, counted for each table."},
    {"examples", "examples_total", "", "", "Examples in accepted pushes."},
    {"rows_pushed", "rows_total", "op", "pushed", "Sparse rows, by operation."},
    {"rows_pulled", "rows_total", "op", "pulled", "Sparse rows, by operation."},
    {"rows_repaired", "rows_total", "op", "repaired", "Sparse rows, by operation."},
    {"rows_changed", "rows_total", "op", "changed", "Sparse rows, by operation."},
    {"rows_made", "rows_total", "op", "made", "Sparse rows, by operation."},
    {"bytes_received", "bytes_total", "direction", "received", "Payload bytes of the data plane."},
    {"bytes_sent", "bytes_total", "direction", "sent", "Payload bytes of the data plane."},
}};

}  // namespace

std::map<std::string, std::uint64_t> ServerCounters::all() const {
  std::map<std::string, std::uint64_t> out;
  for (std::size_t i = 0; i < kCounts; ++i) out[kDescriptions[i].name] = value(static_cast<Count>(i));
  for (const auto& [worker, pushes] : late()) out["late_pushes_of_worker_" + std::to_string(worker)] = pushes;
  for (const auto& [steps, pulls] : staleness()) out["pulls_stale_by_" + std::to_string(steps)] = pulls;
  return out;
}

void ServerCounters::add_late(int worker) {
  std::lock_guard lock(mutex_);
  ++late_[worker];
}

void ServerCounters::add_staleness(std::uint64_t steps) {
  std::lock_guard lock(mutex_);
  ++staleness_[steps];
}

std::map<int, std::uint64_t> ServerCounters::late() const {
  std::lock_guard lock(mutex_);
  return late_;
}

std::map<std::uint64_t, std::uint64_t> ServerCounters::staleness() const {
  std::lock_guard lock(mutex_);
  return staleness_;
}

void ServerCounters::publish(const std::shared_ptr<ServerCounters>& counters, MetricsRegistry& registry,
                             int index) {
  struct Published {
    Counter* counter;
    std::uint64_t reported = 0;
  };
  auto published = std::make_shared<std::vector<Published>>();
  for (const Description& d : kDescriptions) {
    MetricLabels labels{{"server", std::to_string(index)}};
    if (*d.label != '\0') labels[d.label] = d.value;
    published->push_back({&registry.counter(std::string("braid_ps_") + d.metric, d.help, labels)});
  }
  Gauge& parked = registry.gauge("braid_ps_parked_pulls", "Pulls that wait at this moment.",
                                 {{"server", std::to_string(index)}});
  registry.on_collect([counters, published, &parked] {
    parked.set(static_cast<double>(counters->parked_now_.load(std::memory_order_relaxed)));
    for (std::size_t i = 0; i < kCounts; ++i) {
      const std::uint64_t now = counters->value(static_cast<Count>(i));
      (*published)[i].counter->add(static_cast<double>(now - (*published)[i].reported));
      (*published)[i].reported = now;
    }
  });
}

}  // namespace braid::ps
