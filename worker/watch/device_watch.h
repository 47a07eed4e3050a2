// What a worker tells about its device: memory, utilization and power as gauges; and, where somebody looks
// (an HTTP server or a trace), how busy its streams are, in short windows on a thread of its own while steps
// are made. Metric names are in docs/user/metrics.md. Thread rule: made and destroyed by one thread; the rest
// from any.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "engine/device/accelerator.h"
#include "engine/device/activity.h"
#include "worker/watch/monitor.h"

namespace braid {
class Trace;
}
namespace braid::proto {
class Metrics;
}

namespace braid::worker {

class DeviceWatch {
 public:
  /// `trace`: gets the windows' slices, on tracks named after the device's streams; null: none. The monitor's
  /// callbacks outlive this object, and then do nothing. REQUIRES: made before programs run on the device.
  DeviceWatch(const proto::Metrics& options, const std::shared_ptr<Accelerator>& device, Monitor& monitor,
              Trace* trace);
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  /// Busy time a stream in the windows so far, one row each; empty when nothing was sampled.
  std::string table() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;
  std::jthread sampling_;
};

/// "device cuda:0 ..." with a row for each stream.
std::string device_table(const std::string& device, const DeviceActivity& activity);

}  // namespace braid::worker
