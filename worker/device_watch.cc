#include "worker/device_watch.h"

#include <mutex>

#include "engine/device/device_health.h"

namespace braid::worker {

struct DeviceWatch::State {
  std::mutex mu;
  std::shared_ptr<Accelerator> device;         // guarded by mu, as what follows; null: over
  std::unique_ptr<DeviceHealthReader> health;  // null: the driver tells nothing
  MetricsRegistry& registry;

  explicit State(MetricsRegistry& r) : registry(r) {}

  void collect() {
    std::lock_guard lock(mu);
    if (!device) return;
    const MetricLabels labels{{"device", device->description()}};
    const auto show = [&](const char* name, const char* help, double value) {
      registry.gauge(name, help, labels).set(value);
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
    if (now.power_watts) show("braid_device_power_watts", "Power that the device draws.", *now.power_watts);
  }
};

DeviceWatch::DeviceWatch(const std::shared_ptr<Accelerator>& device, MetricsRegistry& registry)
    : state_(std::make_shared<State>(registry)) {
  state_->device = device;
  state_->health = open_device_health(*device);
  registry.on_collect([state = state_] { state->collect(); });
}

DeviceWatch::~DeviceWatch() {
  std::lock_guard lock(state_->mu);
  state_->health.reset();
  state_->device.reset();
}

}  // namespace braid::worker
