// What the driver tells about a device: memory, utilization, power, temperature, processes. Read through
// NVML, which is loaded when a reader is made and needs nothing at build time but CUDA. Thread rule: one
// thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace braid {

class Accelerator;

/// Absent: the device does not tell.
struct DeviceHealth {
  std::optional<std::uint64_t> memory_used_bytes, memory_total_bytes;  // of all processes
  std::optional<double> utilization;  // share of the last sampling period in which a kernel ran, 0 to 1
  std::optional<double> power_watts, power_limit_watts, temperature_celsius;
  struct Process {
    std::int64_t pid = 0;  // as the host counts them, which a container may not
    std::optional<std::uint64_t> memory_bytes;
  };
  std::vector<Process> processes;  // that compute on it
};

class DeviceHealthReader {
 public:
  virtual ~DeviceHealthReader() = default;
  virtual DeviceHealth read() = 0;
};

/// Bytes of a visible device, all of them. Throws: InvalidArgument when there is no such device.
std::uint64_t cuda_device_memory(int ordinal);
/// "0000:1b:00.0", as Linux names its place on the bus. Throws: as cuda_device_memory().
std::string cuda_bus_id(int ordinal);

/// Null where NVML is missing or does not know the device; the reason is logged.
std::unique_ptr<DeviceHealthReader> open_device_health(const Accelerator& device);

}  // namespace braid
