#include "worker/monitor.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace braid::worker {
namespace {

/// Counters only grow: the registry's value is brought up to `total`.
void raise_counter(Counter& counter, double total) {
  if (const double behind = total - counter.value(); behind > 0) counter.add(behind);
}

}  // namespace

Monitor::Monitor(std::string role, const std::string& listen)
    : role_(std::move(role)),
      steps_(registry_.counter("braid_steps_total", "Training steps finished by this process.")),
      examples_(registry_.counter("braid_examples_total", "Training examples consumed by this process.")),
      loss_(registry_.gauge("braid_loss", "Loss of the last finished step.")),
      last_step_(registry_.gauge("braid_step", "Number of the last finished step, from 0.")),
      step_seconds_(
          registry_.histogram("braid_step_seconds", "Time from a step's first issue to its last completion.",
                              {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5})) {
  registry_.on_collect([this] { collect(); });
  if (listen.empty()) return;
  http_ = std::make_unique<HttpServer>(listen);
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

void Monitor::watch_device(std::function<DeviceActivity()> source) {
  std::lock_guard lock(mu_);
  device_source_ = std::move(source);
}

std::uint64_t Monitor::steps_finished() const { return static_cast<std::uint64_t>(steps_.value()); }

HostActivity Monitor::host() const {
  std::lock_guard lock(mu_);
  return host_source_ ? host_source_() : HostActivity{};
}

void Monitor::record_step(std::uint64_t step, double loss, std::int64_t examples, double seconds) {
  steps_.add();
  examples_.add(static_cast<double>(examples));
  loss_.set(loss);
  last_step_.set(static_cast<double>(step));
  step_seconds_.observe(seconds);
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
    raise_counter(registry_.counter("braid_stream_cross_waits_total",
                                    "Waits for other streams that really had to wait.", labels),
                  static_cast<double>(stream.waits));
    for (const auto& [cause, seconds] : stream.wait_seconds)
      raise_counter(registry_.counter("braid_stream_wait_seconds_total",
                                      "Time in which the stream waited, by what it waited for.",
                                      {{"stream", stream.name}, {"cause", cause}}),
                    seconds);
  }
  collect_device(all.device_streams);
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
  nlohmann::json all{{"role", role_}, {"streams", rows}};
  if (host.compute_seconds > 0)
    all["host"] = {{"busy_seconds", host.compute_seconds}, {"overlap_factor", host.overlap_factor()}};
  for (const DeviceStreamWork& s : host.device_streams)
    all["device_streams"].push_back({{"stream", s.name}, {"launches", s.launches}, {"bytes", s.bytes}});
  DeviceActivity device;
  {
    std::lock_guard lock(mu_);
    if (device_source_) device = device_source_();
  }
  if (device.window_seconds > 0) {
    nlohmann::json sampled = nlohmann::json::array();
    for (const StreamActivity& s : device.streams)
      sampled.push_back(
          {{"stream", s.stream}, {"sampled_busy_seconds", s.busy_seconds}, {"pieces", s.pieces}});
    all["device"] = {{"sampled_window_seconds", device.window_seconds},
                     {"sampled_busy_seconds", device.busy_seconds},
                     {"overlap_factor", device.overlap_factor()},
                     {"streams", sampled}};
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
