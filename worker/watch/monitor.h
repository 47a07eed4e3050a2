// What a process tells about itself: Prometheus metrics, health and readiness, its streams as JSON, and the
// page with what it shows (worker/watch/process_page.h), over HTTP on a thread of its own; and the table of
// streams at the end of a run. Metric names are in docs/user/metrics.md; a role has those of what it does.
// Thread rule: record_step from the training loop; everything else from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/http.h"
#include "base/metrics.h"
#include "engine/device/activity.h"
#include "engine/exec/runtime.h"
#include "watch/status.h"
#include "worker/metrics/metrics.h"
#include "worker/watch/process_page.h"

namespace braid::worker {

struct MonitorOptions {
  std::string task;  // "worker 1"
  std::string role;  // "worker", "ps", "evaluator"
  std::string job;
  std::string listen;  // empty: no server
  bool leads = false;
  /// Why a request for what acts is refused; empty: it is not. Null: none is.
  std::function<std::string(const HttpRequest&)> refuse = {};
};

class Monitor {
 public:
  explicit Monitor(MonitorOptions options);
  ~Monitor();

  MetricsRegistry& registry() { return registry_; }
  /// "host:port" of the HTTP server; empty when there is none.
  std::string address() const;

  /// Where the streams' times come from; called on the HTTP thread. Pass {} before what it captures is gone.
  void watch_host(std::function<HostActivity()> source);
  /// The same for the sampled streams of a device ("cuda:0"), of each that there is, for /streams; may be
  /// called as long as the monitor lives.
  void watch_device(std::string name, std::function<DeviceActivity()> source);
  /// Fills a part of the status, whenever somebody asks; likewise. `asks_driver`: only for who looks.
  void watch_part(std::function<void(watch::Status&)> part, bool asks_driver = false);
  /// The stages of the run, and what else it knows. Pass {} before what it captures is gone.
  void watch_run(std::function<void(watch::Status&)> source);
  /// What the process does: "loading", "training", "serving", ...
  void set_state(std::string state);
  /// Steps up to `total` begin, of `rows` of this process each.
  void begin_run(std::uint64_t total, std::int64_t rows, std::int64_t global_rows, int stage_threads,
                 bool synchronous);
  void record_checkpoint(std::uint64_t step, double seconds);
  /// Time between steps that went to something else.
  void add_pause(double seconds);
  const std::string& task() const { return options_.task; }
  /// Null without an HTTP server.
  ProcessPage* page() { return page_.get(); }
  /// Of this process, so far.
  std::uint64_t steps_finished() const;
  void record_step(std::uint64_t step, double loss, std::int64_t examples, double seconds,
                   double learning_rate);
  /// Of the variables after `step` steps, on the test data.
  void record_evaluation(std::uint64_t step, const MetricValues& measured);
  /// False makes /readyz answer 503, e.g. while shutting down.
  void set_ready(bool ready) { ready_ = ready; }

  /// Busy and waiting time a stream, one row each, aligned; `seconds` is the length of the run. Where more
  /// than one of them computes, the last line says how far they overlapped.
  static std::string stream_table(const HostActivity& host, double seconds);

 private:
  struct Training;  // metrics of who trains
  Training& training();
  watch::Status read_status(bool devices) const;
  void collect();
  void collect_device(const std::vector<DeviceStreamWork>& streams);
  HostActivity host() const;
  std::string streams_json() const;

  const MonitorOptions options_;
  MetricsRegistry registry_;
  std::atomic<bool> ready_{true};
  std::atomic<std::uint64_t> steps_finished_{0};
  mutable std::mutex mu_;
  std::function<HostActivity()> host_source_;  // guarded by mu_
  struct DeviceSource {
    std::string name;
    std::function<DeviceActivity()> now;
  };
  std::vector<DeviceSource> device_sources_;  // guarded by mu_
  struct Part {
    std::function<void(watch::Status&)> fill;
    bool asks_driver;
  };
  std::vector<Part> parts_;                         // guarded by mu_
  std::function<void(watch::Status&)> run_source_;  // guarded by mu_
  watch::Status status_;                            // guarded by mu_: what is told from time to time
  std::chrono::steady_clock::time_point last_step_at_, last_checkpoint_at_;  // guarded by mu_
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::unique_ptr<Training> training_;  // made by the thread that trains, before others see it
  std::unique_ptr<ProcessPage> page_;
  std::unique_ptr<HttpServer> http_;  // last: its thread uses the rest
};

}  // namespace braid::worker
