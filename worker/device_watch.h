// What a worker tells about its device: memory, utilization and power as gauges. Metric names are in
// docs/metrics.md. Thread rule: made and destroyed by one thread; values are read on the thread that renders
// the metrics.
#pragma once

#include <memory>

#include "base/metrics.h"
#include "engine/device/accelerator.h"

namespace braid::worker {

class DeviceWatch {
 public:
  /// The registry's callbacks outlive this object, and then do nothing.
  DeviceWatch(const std::shared_ptr<Accelerator>& device, MetricsRegistry& registry);
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace braid::worker
