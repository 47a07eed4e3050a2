#include "worker/watch/monitor.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "comm/transport/traffic.h"
#include "worker/watch/process_use.h"

namespace braid::worker {
namespace {

/// Counters only grow: the registry's value is brought up to `total`.
void raise_counter(Counter& counter, double total) {
  if (const double behind = total - counter.value(); behind > 0) counter.add(behind);
}

double seconds_since(std::chrono::steady_clock::time_point then) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace

struct Monitor::Training {
  explicit Training(MetricsRegistry& registry)
      : steps(registry.counter("braid_steps_total", "Training steps finished by this process.")),
        examples(registry.counter("braid_examples_total", "Training examples consumed by this process.")),
        loss(registry.gauge("braid_loss", "Loss of the last finished step.")),
        last_step(registry.gauge("braid_step", "Number of the last finished step, from 0.")),
        target(registry.gauge("braid_target_steps", "Steps after which the job is done.")),
        learning_rate(registry.gauge("braid_learning_rate", "Learning rate of the last finished step.")),
        step_seconds(
            registry.histogram("braid_step_seconds", "Time from a step's first issue to its last completion.",
                               {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5})) {}

  Counter& steps;
  Counter& examples;
  Gauge& loss;
  Gauge& last_step;
  Gauge& target;
  Gauge& learning_rate;
  Histogram& step_seconds;
};

Monitor::Monitor(MonitorOptions options) : options_(std::move(options)) {
  registry_.on_collect([this] { collect(); });
  if (options_.listen.empty()) return;
  const auto space = options_.task.rfind(' ');
  registry_
      .gauge("braid_job_info", "Which part of which job this process is; always 1.",
             {{"job", options_.job},
              {"role", options_.role},
              {"index", space == std::string::npos ? "0" : options_.task.substr(space + 1)},
              {"leads", options_.leads ? "true" : "false"}})
      .set(1);
  publish_process(registry_);
  last_step_at_ = last_checkpoint_at_ = begin_;
  status_.task = options_.task;
  status_.role = options_.role;
  status_.job = options_.job;
  status_.leads = options_.leads;
  status_.host = host_name();
  page_ = std::make_unique<ProcessPage>(
      ProcessPage::Sources{[this](bool devices) { return read_status(devices); }, options_.refuse});
  http_ = std::make_unique<HttpServer>(options_.listen);
  page_->add_to(*http_);
  http_->handle("/metrics", [this](std::string_view) {
    return HttpResponse{200, "text/plain; version=0.0.4; charset=utf-8", registry_.render()};
  });
  http_->handle("/healthz", [](std::string_view) {
    return HttpResponse{200, "text/plain; charset=utf-8", "ok\n"};
  });
  http_->handle("/readyz", [this](std::string_view) {
    return ready_ ? HttpResponse{200, "text/plain; charset=utf-8", "ready\n"}
                  : HttpResponse{503, "text/plain; charset=utf-8", "stopping\n"};
  });
  http_->handle("/streams", [this](std::string_view) {
    return HttpResponse{200, "application/json", streams_json()};
  });
}

Monitor::~Monitor() = default;

std::string Monitor::address() const { return http_ ? http_->address() : std::string(); }

void Monitor::watch_host(std::function<HostActivity()> source) {
  std::lock_guard lock(mu_);
  host_source_ = std::move(source);
}

void Monitor::watch_device(std::string name, std::function<DeviceActivity()> source) {
  std::lock_guard lock(mu_);
  device_sources_.push_back({std::move(name), std::move(source)});
}

void Monitor::watch_part(std::function<void(watch::Status&)> part, bool asks_driver) {
  std::lock_guard lock(mu_);
  parts_.push_back({std::move(part), asks_driver});
}

void Monitor::watch_run(std::function<void(watch::Status&)> source) {
  std::lock_guard lock(mu_);
  run_source_ = std::move(source);
}

void Monitor::set_state(std::string state) {
  std::lock_guard lock(mu_);
  status_.state = std::move(state);
  last_step_at_ = std::chrono::steady_clock::now();
}

void Monitor::begin_run(std::uint64_t total, std::int64_t rows, std::int64_t global_rows, int stage_threads,
                        bool synchronous) {
  training().target.set(static_cast<double>(total));
  std::lock_guard lock(mu_);
  status_.trains = true;
  status_.target_steps = total;
  status_.batch_rows = rows;
  status_.global_batch_rows = global_rows;
  status_.stage_threads_set = stage_threads;
  status_.synchronous = synchronous;
  last_step_at_ = last_checkpoint_at_ = std::chrono::steady_clock::now();
}

void Monitor::record_checkpoint(std::uint64_t step, double seconds) {
  registry_
      .histogram("braid_checkpoint_seconds", "Time that writing a checkpoint took.",
                 {0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300})
      .observe(seconds);
  registry_.gauge("braid_checkpoint_step", "Steps in the last checkpoint that was written.")
      .set(static_cast<double>(step));
  registry_
      .gauge("braid_checkpoint_timestamp_seconds",
             "When the last checkpoint was whole, Unix time: time() minus it is its age.")
      .set(std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
  std::lock_guard lock(mu_);
  watch::Checkpoints& all = status_.checkpoints ? *status_.checkpoints : status_.checkpoints.emplace();
  ++all.saved;
  all.last_step = step;
  all.duration_seconds = seconds;
  all.spent_seconds += seconds;
  last_checkpoint_at_ = std::chrono::steady_clock::now();
}

void Monitor::add_pause(double seconds) {
  std::lock_guard lock(mu_);
  status_.pause_seconds += seconds;
}

Monitor::Training& Monitor::training() {
  if (!training_) training_ = std::make_unique<Training>(registry_);
  return *training_;
}

watch::Status Monitor::read_status(bool devices) const {
  watch::Status now;
  std::function<void(watch::Status&)> run;
  std::vector<Part> parts;
  {
    std::lock_guard lock(mu_);
    now = status_;
    now.idle_seconds_since_step = seconds_since(last_step_at_);
    if (now.checkpoints) now.checkpoints->age_seconds = seconds_since(last_checkpoint_at_);
    parts = parts_;
    if (host_source_) {
      const HostActivity host = host_source_();
      now.compute_busy_seconds = host.compute_seconds;
      for (const StreamStats& s : host.streams) {
        watch::Stream& stream = now.streams.emplace_back();
        stream.name = s.name;
        stream.cause = s.cause;
        stream.busy_seconds = s.busy_seconds;
        stream.wait_seconds = s.wait_seconds;
        stream.launches = s.launches;
        stream.bytes = s.bytes;
      }
    }
    if (run_source_) run_source_(now);
  }
  for (const Part& part : parts)
    if (devices || !part.asks_driver) part.fill(now);
  now.time = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  now.uptime_seconds = seconds_since(begin_);
  now.process = process_use();
  const comm::Traffic moved = comm::traffic();
  now.network.received_bytes = moved.received_bytes;
  now.network.sent_bytes = moved.sent_bytes;
  return now;
}

std::uint64_t Monitor::steps_finished() const { return steps_finished_; }

HostActivity Monitor::host() const {
  std::lock_guard lock(mu_);
  return host_source_ ? host_source_() : HostActivity{};
}

void Monitor::record_step(std::uint64_t step, double loss, std::int64_t examples, double seconds,
                          double learning_rate) {
  Training& metrics = training();
  metrics.steps.add();
  metrics.examples.add(static_cast<double>(examples));
  metrics.loss.set(loss);
  metrics.last_step.set(static_cast<double>(step));
  metrics.learning_rate.set(learning_rate);
  metrics.step_seconds.observe(seconds);
  steps_finished_.fetch_add(1, std::memory_order_relaxed);
  if (!page_) return;
  page_->trace().step_ended(step);
  std::lock_guard lock(mu_);
  status_.trains = true;
  status_.step = step;
  ++status_.steps_total;
  status_.examples_total += static_cast<std::uint64_t>(examples);
  status_.step_seconds_total += seconds;
  status_.loss = loss;
  status_.learning_rate = learning_rate;
  last_step_at_ = std::chrono::steady_clock::now();
}

void Monitor::record_evaluation(std::uint64_t step, const MetricValues& measured) {
  registry_.gauge("braid_evaluation_step", "The step after which the variables were measured last.")
      .set(static_cast<double>(step));
  const auto set = [this](const MetricValue& metric, const std::string& task) {
    MetricLabels labels{{"metric", metric.name}};
    if (!task.empty()) labels.emplace("task", task);
    registry_.gauge("braid_evaluation", "What was measured last on the test data.", labels).set(metric.value);
  };
  for (const MetricValue& metric : measured.values) set(metric, "");
  for (const auto& [task, values] : measured.tasks)
    for (const MetricValue& metric : values) set(metric, task);
  std::lock_guard lock(mu_);
  status_.metrics_step = step;
  for (const MetricValue& metric : measured.flat()) status_.metrics[metric.name] = metric.value;
}

void Monitor::collect() {
  const HostActivity all = host();
  if (all.compute_seconds > 0) {
    raise_counter(registry_.counter("braid_host_busy_seconds_total",
                                    "Time in which any compute stream of the host was working."),
                  all.compute_seconds);
    registry_.gauge("braid_host_overlap_factor", "Sum of the compute streams' busy time over that time.")
        .set(all.overlap_factor());
  }
  for (const StreamStats& stream : all.streams) {
    const MetricLabels labels{{"stream", stream.name}};
    raise_counter(
        registry_.counter("braid_stream_busy_seconds_total", "Time in which the stream was working.", labels),
        stream.busy_seconds);
    raise_counter(
        registry_.counter("braid_stream_launches_total", "Nodes that were started on the stream.", labels),
        static_cast<double>(stream.launches));
    raise_counter(registry_.counter(
                      "braid_stream_bytes_total",
                      "Bytes that the stream's nodes read and wrote, as the cost model counts them.", labels),
                  static_cast<double>(stream.bytes));
    raise_counter(
        registry_.counter("braid_stream_cross_waits_total", "Waits for other streams that blocked.", labels),
        static_cast<double>(stream.waits));
    for (const auto& [cause, seconds] : stream.wait_seconds)
      raise_counter(registry_.counter("braid_stream_wait_seconds_total",
                                      "Time in which the stream waited, by what it waited for.",
                                      {{"stream", stream.name}, {"cause", cause}}),
                    seconds);
  }
  collect_device(all.device_streams);
  const comm::Traffic moved = comm::traffic();
  for (const auto& [direction, bytes] :
       {std::pair("received", moved.received_bytes), std::pair("sent", moved.sent_bytes)})
    if (bytes > 0)
      raise_counter(
          registry_.counter("braid_network_bytes_total", "Bytes of framed messages of the data plane.",
                            {{"direction", direction}}),
          static_cast<double>(bytes));
}

void Monitor::collect_device(const std::vector<DeviceStreamWork>& streams) {
  for (const DeviceStreamWork& stream : streams) {
    const MetricLabels labels{{"stream", stream.name}};
    raise_counter(registry_.counter("braid_device_stream_launches_total",
                                    "Nodes and copies that were put on the device's stream.", labels),
                  static_cast<double>(stream.launches));
    raise_counter(registry_.counter("braid_device_stream_bytes_total",
                                    "Bytes that they read and wrote, as the cost model counts them.", labels),
                  static_cast<double>(stream.bytes));
  }
}

namespace {

nlohmann::json device_json(const DeviceActivity& device) {
  nlohmann::json sampled = nlohmann::json::array();
  for (const StreamActivity& s : device.streams)
    sampled.push_back({{"stream", s.stream}, {"sampled_busy_seconds", s.busy_seconds}, {"pieces", s.pieces}});
  return {{"sampled_window_seconds", device.window_seconds},
          {"sampled_busy_seconds", device.busy_seconds},
          {"overlap_factor", device.overlap_factor()},
          {"streams", sampled}};
}

}  // namespace

std::string Monitor::streams_json() const {
  const HostActivity host = this->host();
  nlohmann::json rows = nlohmann::json::array();
  for (const StreamStats& s : host.streams)
    rows.push_back({{"stream", s.name},
                    {"busy_seconds", s.busy_seconds},
                    {"wait_seconds", s.wait_seconds},
                    {"launches", s.launches},
                    {"bytes", s.bytes},
                    {"waits", s.waits}});
  nlohmann::json all{{"role", options_.task}, {"streams", rows}};
  if (host.compute_seconds > 0)
    all["host"] = {{"busy_seconds", host.compute_seconds}, {"overlap_factor", host.overlap_factor()}};
  for (const DeviceStreamWork& s : host.device_streams)
    all["device_streams"].push_back({{"stream", s.name}, {"launches", s.launches}, {"bytes", s.bytes}});
  std::vector<DeviceSource> devices;
  {
    std::lock_guard lock(mu_);
    devices = device_sources_;
  }
  for (const DeviceSource& source : devices) {
    const DeviceActivity device = source.now();
    if (device.window_seconds <= 0) continue;
    if (!all.contains("device")) all["device"] = device_json(device);
    if (devices.size() > 1) all["devices"][source.name] = device_json(device);
  }
  return all.dump() + "\n";
}

std::string Monitor::stream_table(const HostActivity& host, double seconds) {
  std::set<std::string> causes;
  for (const auto& s : host.streams)
    for (const auto& [cause, value] : s.wait_seconds) causes.insert(cause);
  std::string text =
      fmt::format("{:<12}{:>9}{:>8}{:>11}{:>10}", "stream", "busy s", "busy %", "launches", "MiB");
  for (const auto& cause : causes) text += fmt::format("{:>14}", "wait " + cause);
  text += "\n";
  for (const auto& s : host.streams) {
    text += fmt::format("{:<12}{:>9.2f}{:>7.1f}%{:>11}{:>10.1f}", s.name, s.busy_seconds,
                        seconds > 0 ? 100 * s.busy_seconds / seconds : 0.0, s.launches,
                        static_cast<double>(s.bytes) / (1024 * 1024));
    for (const auto& cause : causes) {
      auto it = s.wait_seconds.find(cause);
      text += fmt::format("{:>14.2f}", it == s.wait_seconds.end() ? 0.0 : it->second);
    }
    text += "\n";
  }
  const auto computing = std::count_if(host.streams.begin(), host.streams.end(), [](const StreamStats& s) {
    return s.cause == "compute" && s.busy_seconds > 0;
  });
  if (computing > 1)
    text += fmt::format("compute streams together: busy {:.2f} s, overlap factor {:.2f}\n",
                        host.compute_seconds, host.overlap_factor());
  if (!host.device_streams.empty())
    text += fmt::format("{:<22}{:>18}{:>10}\n", "stream of the device", "launches", "MiB");
  for (const DeviceStreamWork& s : host.device_streams)
    text += fmt::format("{:<22}{:>18}{:>10.1f}\n", s.name, s.launches,
                        static_cast<double>(s.bytes) / (1024 * 1024));
  return text;
}

}  // namespace braid::worker
