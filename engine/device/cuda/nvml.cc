// NVML by its documented C interface (nvml.h is not on every machine that has the driver), which has kept
// these functions and numbers since its first versions.
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <array>
#include <string>

#include "base/cuda/check.h"
#include "base/log.h"
#include "engine/device/accelerator.h"
#include "engine/device/device_health.h"

namespace braid {
namespace {

constexpr const char* kLibrary = "libnvidia-ml.so.1";
constexpr int kSuccess = 0;
using Device = void*;

struct Memory {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned int gpu, memory;  // percent
};

class Library {
 public:
  Library() : handle_(dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL)) {
    load(init, "nvmlInit_v2");
    load(shutdown, "nvmlShutdown");
    load(device_by_bus_id, "nvmlDeviceGetHandleByPciBusId_v2");
    load(memory, "nvmlDeviceGetMemoryInfo");
    load(utilization, "nvmlDeviceGetUtilizationRates");
    load(power, "nvmlDeviceGetPowerUsage");
  }
  ~Library() {
    if (handle_) dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  bool complete() const { return init && shutdown && device_by_bus_id && memory && utilization && power; }

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*device_by_bus_id)(const char*, Device*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  int (*utilization)(Device, Utilization*) = nullptr;
  int (*power)(Device, unsigned int* milliwatts) = nullptr;

 private:
  template <class Function>
  void load(Function& function, const char* name) {
    if (handle_) function = reinterpret_cast<Function>(dlsym(handle_, name));
  }

  void* const handle_;
};

class NvmlReader final : public DeviceHealthReader {
 public:
  ~NvmlReader() override {
    if (started_) library_.shutdown();
  }

  /// What keeps it from working; empty: nothing.
  std::string open(const std::string& bus_id) {
    if (!library_.complete()) return std::string(kLibrary) + " is not there";
    if (const int status = library_.init(); status != kSuccess)
      return "nvmlInit failed with status " + std::to_string(status);
    started_ = true;
    if (const int status = library_.device_by_bus_id(bus_id.c_str(), &device_); status != kSuccess)
      return "NVML does not know device " + bus_id + " (status " + std::to_string(status) + ")";
    return {};
  }

  DeviceHealth read() override {
    DeviceHealth health;
    Memory memory{};
    if (library_.memory(device_, &memory) == kSuccess) {
      health.memory_used_bytes = memory.used;
      health.memory_total_bytes = memory.total;
    }
    Utilization utilization{};
    if (library_.utilization(device_, &utilization) == kSuccess) health.utilization = utilization.gpu / 100.0;
    unsigned int milliwatts = 0;
    if (library_.power(device_, &milliwatts) == kSuccess) health.power_watts = milliwatts / 1000.0;
    return health;
  }

 private:
  Library library_;
  bool started_ = false;
  Device device_ = nullptr;
};

}  // namespace

std::unique_ptr<DeviceHealthReader> open_device_health(const Accelerator& device) {
  std::array<char, 32> bus_id{};
  BRAID_CUDA_CHECK(
      cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), device.options().ordinal));
  auto reader = std::make_unique<NvmlReader>();
  if (const std::string why = reader->open(bus_id.data()); !why.empty()) {
    log_info("{}: no memory, utilization and power in metrics: {}", device.description(), why);
    return nullptr;
  }
  return reader;
}

}  // namespace braid
