// What a process tells about itself: Prometheus metrics, health and readiness, and its streams as JSON, over
// HTTP on a thread of its own; and the table of streams at the end of a run. Metric names are in
// docs/user/metrics.md. Thread rule: record_step from the training loop; everything else from any thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/http.h"
#include "base/metrics.h"
#include "engine/device/activity.h"
#include "engine/exec/runtime.h"
#include "worker/metrics/metrics.h"

namespace braid::worker {

class Monitor {
 public:
  /// `role` labels /streams ("worker 1"). `listen` empty: no server.
  Monitor(std::string role, const std::string& listen);
  ~Monitor();

  MetricsRegistry& registry() { return registry_; }
  /// "host:port" of the HTTP server; empty when there is none.
  std::string address() const;

  /// Where the streams' times come from; called on the HTTP thread. Pass {} before what it captures is gone.
  void watch_host(std::function<HostActivity()> source);
  /// The same for the sampled streams of a device, for /streams; may be called as long as the monitor lives.
  void watch_device(std::function<DeviceActivity()> source);
  /// Of this process, so far.
  std::uint64_t steps_finished() const;
  void record_step(std::uint64_t step, double loss, std::int64_t examples, double seconds);
  /// Of the variables after `step` steps, on the test data.
  void record_evaluation(std::uint64_t step, const MetricValues& measured);
  /// False makes /readyz answer 503, e.g. while shutting down.
  void set_ready(bool ready) { ready_ = ready; }

  /// Busy and waiting time a stream, one row each, aligned; `seconds` is the length of the run. Where more
  /// than one of them computes, the last line says how far they overlapped.
  static std::string stream_table(const HostActivity& host, double seconds);

 private:
  void collect();
  void collect_device(const std::vector<DeviceStreamWork>& streams);
  HostActivity host() const;
  std::string streams_json() const;

  std::string role_;
  MetricsRegistry registry_;
  std::atomic<bool> ready_{true};
  mutable std::mutex mu_;
  std::function<HostActivity()> host_source_;      // guarded by mu_
  std::function<DeviceActivity()> device_source_;  // guarded by mu_
  Counter& steps_;
  Counter& examples_;
  Gauge& loss_;
  Gauge& last_step_;
  Histogram& step_seconds_;
  std::unique_ptr<HttpServer> http_;  // last: its thread uses the rest
};

}  // namespace braid::worker
