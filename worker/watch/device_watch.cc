#include "worker/watch/device_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "engine/device/device_health.h"
#include "engine/exec/trace.h"
#include "proto/job.pb.h"

namespace braid::worker {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBeforeFirst{200};  // from when steps are seen to be made
constexpr milliseconds kDeviceLook{100};   // whether they are

std::chrono::nanoseconds to_ns(double seconds) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}

/// Of this container's processes; empty for others.
std::string name_of_process(std::int64_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(in, name);
  return name;
}

/// Counters only grow: the registry's value is brought up to `total`.
void raise_to(Counter& counter, double total) {
  if (const double behind = total - counter.value(); behind > 0) counter.add(behind);
}

}  // namespace

struct DeviceWatch::State {
  std::mutex mu;
  std::shared_ptr<Accelerator> device;         // guarded by mu, as what follows; null: over
  std::unique_ptr<DeviceHealthReader> health;  // null: the driver tells nothing
  DeviceActivity total;
  MetricsRegistry& registry;
  const std::string name;
  std::uint64_t limit_bytes = 0;

  State(MetricsRegistry& r, std::string n) : registry(r), name(std::move(n)) {}

  void collect() {
    std::lock_guard lock(mu);
    if (!device) return;
    collect_health();
    if (total.window_seconds > 0) collect_activity();
  }

  void tell(watch::Status& status) {
    std::lock_guard lock(mu);
    if (!device) return;
    watch::Gpu& gpu = status.gpus.emplace_back();
    gpu.name = name;
    gpu.memory_held_bytes = device->bytes_in_use();
    gpu.memory_limit_bytes = limit_bytes;
    if (total.window_seconds > 0) {
      gpu.sampled_seconds = total.window_seconds;
      gpu.busy = total.busy_seconds / total.window_seconds;
      gpu.overlap = total.overlap_factor();
      gpu.input_copies = total.inputs.copies;
      gpu.input_copy_bytes = total.inputs.bytes;
      gpu.input_copy_seconds = total.inputs.seconds;
      gpu.input_copy_hidden_seconds = total.inputs.hidden_seconds;
      for (const StreamActivity& stream : total.streams)
        gpu.streams.push_back({stream.stream, stream.busy_seconds / total.window_seconds, stream.pieces});
    }
    if (!health) return;
    const DeviceHealth now = health->read();
    gpu.memory_used_bytes = now.memory_used_bytes;
    gpu.memory_total_bytes = now.memory_total_bytes;
    gpu.utilization = now.utilization;
    gpu.power_watts = now.power_watts;
    gpu.power_limit_watts = now.power_limit_watts;
    gpu.temperature_celsius = now.temperature_celsius;
    for (const DeviceHealth::Process& process : now.processes)
      gpu.processes.push_back({process.pid, name_of_process(process.pid), process.memory_bytes});
  }

  void collect_health() {
    const auto show = [&](const char* metric, const char* help, double value) {
      registry.gauge(metric, help, {{"device", name}}).set(value);
    };
    show("braid_device_memory_held_bytes", "Device memory that this process has allocated.",
         static_cast<double>(device->bytes_in_use()));
    if (!health) return;
    const DeviceHealth now = health->read();
    if (now.memory_used_bytes)
      show("braid_device_memory_used_bytes", "Device memory in use by all processes.",
           static_cast<double>(*now.memory_used_bytes));
    if (now.memory_total_bytes)
      show("braid_device_memory_total_bytes", "Memory of the device.",
           static_cast<double>(*now.memory_total_bytes));
    if (now.utilization)
      show("braid_device_utilization_ratio",
           "Share of the driver's last sampling period in which any kernel ran.", *now.utilization);
    if (now.temperature_celsius)
      show("braid_device_temperature_celsius", "Temperature of the device.", *now.temperature_celsius);
    if (now.power_limit_watts)
      show("braid_device_power_limit_watts", "Power that the device may draw.", *now.power_limit_watts);
    if (now.power_watts) show("braid_device_power_watts", "Power that the device draws.", *now.power_watts);
  }

  void collect_activity() {
    const MetricLabels labels{{"device", name}};
    const char* window_help = "Length of the windows in which the device's streams were measured.";
    raise_to(registry.counter("braid_device_sampled_window_seconds_total", window_help, labels),
             total.window_seconds);
    raise_to(registry.counter("braid_device_sampled_busy_seconds_total",
                              "Time of those windows in which any stream was working.", labels),
             total.busy_seconds);
    registry
        .gauge("braid_device_overlap_factor",
               "Sum of the streams' sampled busy time over the device's: 1 means one after another.", labels)
        .set(total.overlap_factor());
    collect_inputs(labels);
    for (const StreamActivity& stream : total.streams) {
      const MetricLabels of_stream{{"device", name}, {"stream", stream.stream}};
      raise_to(registry.counter("braid_stream_sampled_window_seconds_total", window_help, of_stream),
               total.window_seconds);
      raise_to(registry.counter("braid_stream_sampled_busy_seconds_total",
                                "Time of those windows in which the stream was working.", of_stream),
               stream.busy_seconds);
    }
  }

  void collect_inputs(const MetricLabels& labels) {
    const CopyActivity& inputs = total.inputs;
    if (inputs.copies == 0) return;
    const auto raise = [&](const char* metric, const char* help, double value) {
      raise_to(registry.counter(metric, help, labels), value);
    };
    raise("braid_input_copies_sampled_total", "Copies of batches to the device in the sampled windows.",
          static_cast<double>(inputs.copies));
    raise("braid_input_copy_sampled_bytes_total", "Bytes of those copies.",
          static_cast<double>(inputs.bytes));
    raise("braid_input_copy_sampled_seconds_total", "Time in which one of those copies was under way.",
          inputs.seconds);
    raise("braid_input_copy_sampled_hidden_seconds_total",
          "The part of that time in which kernels ran on the device, too.", inputs.hidden_seconds);
  }
};

namespace {

/// The loop of the sampling thread.
class Sampling {
 public:
  using Add = std::function<void(const DeviceActivity&)>;

  Sampling(const proto::Metrics& options, std::shared_ptr<ActivitySampler> sampler, Monitor& monitor, Add add)
      : every_(to_ns(options.sample_every_seconds())),
        sampler_(std::move(sampler)),
        monitor_(monitor),
        add_(std::move(add)) {
    window_.length = to_ns(options.sample_window_seconds());
  }

  void run(const std::stop_token& stop) {
    std::uint64_t seen = monitor_.steps_finished();
    ProcessPage* const page = monitor_.page();
    auto delay = std::chrono::nanoseconds(kBeforeFirst);
    try {
      while (nap(stop, kDeviceLook)) {
        const std::uint64_t now = monitor_.steps_finished();
        if (now == seen && !asked(page)) continue;
        seen = now;
        if (!nap_unless_asked(stop, delay, page)) return;
        delay = every_;
        const bool for_somebody = asked(page);
        const DeviceActivity window = sampler_->sample(window_, stop);
        if (window.window_seconds > 0) add_(window);
        if (for_somebody) page->trace().device_done();
      }
    } catch (const Error& error) {
      log_warning("the device's streams are no longer measured: {}", error.message());
      if (!page) return;
      page->trace().set_samples_device(false);
      page->trace().device_done();
    }
  }

 private:
  /// Somebody wants to see a window now (worker/watch/trace_window.h).
  static bool asked(ProcessPage* page) { return page && page->trace().wants_device(); }

  bool nap_unless_asked(const std::stop_token& stop, std::chrono::nanoseconds time, ProcessPage* page) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (!asked(page)) {
      const auto left = end - std::chrono::steady_clock::now();
      if (left <= std::chrono::nanoseconds(0)) break;
      if (!nap(stop, std::min<std::chrono::nanoseconds>(left, kDeviceLook))) return false;
    }
    return !stop.stop_requested();
  }

  bool nap(const std::stop_token& stop, std::chrono::nanoseconds time) {
    std::unique_lock lock(mu_);
    nobody_.wait_for(lock, stop, time, [] { return false; });
    return !stop.stop_requested();
  }

  const std::chrono::nanoseconds every_;
  ActivityWindow window_;
  const std::shared_ptr<ActivitySampler> sampler_;
  Monitor& monitor_;
  const Add add_;
  std::mutex mu_;
  std::condition_variable_any nobody_;
};

void draw(const DeviceActivity& window, const std::string& device, Trace& trace) {
  std::vector<TraceTrack*> tracks;
  for (const StreamActivity& stream : window.streams)
    tracks.push_back(&trace.track(device + " " + stream.stream));
  for (const ActivitySlice& slice : window.slices)
    tracks[static_cast<std::size_t>(slice.stream)]->add(
        {trace.intern(slice.name), slice.begin, slice.end, 0, TraceSlice::Kind::Work, 0});
}

}  // namespace

DeviceWatch::DeviceWatch(const proto::Metrics& options, const std::shared_ptr<Accelerator>& device,
                         Monitor& monitor, Trace* trace)
    : state_(std::make_shared<State>(monitor.registry(), device->description())) {
  state_->device = device;
  state_->limit_bytes = device->options().memory_limit;
  state_->health = open_device_health(*device);
  monitor.registry().on_collect([state = state_] { state->collect(); });
  const std::string short_name = fmt::format("cuda:{}", device->options().ordinal);
  monitor.watch_device(short_name, [state = state_] {
    std::lock_guard lock(state->mu);
    return state->total;
  });
  monitor.watch_part([state = state_](watch::Status& status) { state->tell(status); }, true);
  if (!options.sampling()) return;
  std::shared_ptr<ActivitySampler> sampler;
  try {
    sampler = make_activity_sampler(*device);
  } catch (const Unavailable& error) {
    log_info("{}: its streams are not measured: {}", state_->name, error.message());
    return;
  }
  auto add = [state = state_, trace, short_name](const DeviceActivity& window) {
    if (trace) draw(window, short_name, *trace);
    std::lock_guard lock(state->mu);
    state->total.add(window);
  };
  if (ProcessPage* page = monitor.page()) page->trace().set_samples_device(true);
  auto loop = std::make_shared<Sampling>(options, std::move(sampler), monitor, std::move(add));
  sampling_ = std::jthread([loop](const std::stop_token& stop) { loop->run(stop); });
}

DeviceWatch::~DeviceWatch() {
  sampling_.request_stop();
  if (sampling_.joinable()) sampling_.join();
  std::lock_guard lock(state_->mu);
  state_->health.reset();
  state_->device.reset();
}

std::string DeviceWatch::table() const {
  std::lock_guard lock(state_->mu);
  return state_->total.window_seconds > 0 ? device_table(state_->name, state_->total) : std::string();
}

std::string device_table(const std::string& device, const DeviceActivity& activity) {
  std::string text =
      fmt::format("{}, sampled for {:.2f} s: busy {:.1f}%, overlap factor {:.2f}\n{:<12}{:>10}{:>9}{:>11}\n",
                  device, activity.window_seconds, 100 * activity.busy_seconds / activity.window_seconds,
                  activity.overlap_factor(), "stream", "sampled s", "busy %", "pieces");
  for (const StreamActivity& stream : activity.streams)
    text += fmt::format("{:<12}{:>10.4f}{:>8.1f}%{:>11}\n", stream.stream, stream.busy_seconds,
                        100 * stream.busy_seconds / activity.window_seconds, stream.pieces);
  if (const CopyActivity& inputs = activity.inputs; inputs.seconds > 0)
    text += fmt::format(
        "staging: {:.3f} MiB and {:.1f} us a copy ({:.1f} GB/s), {:.1f}% of that beside kernels\n",
        static_cast<double>(inputs.bytes) / static_cast<double>(inputs.copies) / (1 << 20),
        1e6 * inputs.seconds / static_cast<double>(inputs.copies),
        1e-9 * static_cast<double>(inputs.bytes) / inputs.seconds,
        100 * inputs.hidden_seconds / inputs.seconds);
  if (activity.dropped > 0)
    text += fmt::format("{} records were lost: busy times are too low\n", activity.dropped);
  return text;
}

}  // namespace braid::worker
