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

/// The layout of nvmlProcessInfo_v2_t, which nvmlDeviceGetComputeRunningProcesses_v3 fills.
struct ProcessInfo {
  unsigned int pid;
  unsigned long long memory;
  unsigned int gpu_instance, compute_instance;
};
constexpr unsigned long long kUnknownMemory = ~0ULL;
constexpr unsigned int kMostProcesses = 64;
constexpr int kTemperatureOfGpu = 0;

class Library {
 public:
  Library() : handle_(dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL)) {
    load(init, "nvmlInit_v2");
    load(shutdown, "nvmlShutdown");
    load(device_by_bus_id, "nvmlDeviceGetHandleByPciBusId_v2");
    load(memory, "nvmlDeviceGetMemoryInfo");
    load(utilization, "nvmlDeviceGetUtilizationRates");
    load(power, "nvmlDeviceGetPowerUsage");
    load(power_limit, "nvmlDeviceGetEnforcedPowerLimit");
    load(temperature, "nvmlDeviceGetTemperature");
    load(processes, "nvmlDeviceGetComputeRunningProcesses_v3");
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
  // Drivers may lack these.
  int (*power_limit)(Device, unsigned int* milliwatts) = nullptr;
  int (*temperature)(Device, int sensor, unsigned int* celsius) = nullptr;
  int (*processes)(Device, unsigned int* count, ProcessInfo* infos) = nullptr;

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
    if (library_.power_limit && library_.power_limit(device_, &milliwatts) == kSuccess)
      health.power_limit_watts = milliwatts / 1000.0;
    unsigned int celsius = 0;
    if (library_.temperature && library_.temperature(device_, kTemperatureOfGpu, &celsius) == kSuccess)
      health.temperature_celsius = celsius;
    std::array<ProcessInfo, kMostProcesses> infos{};
    unsigned int count = kMostProcesses;
    if (library_.processes && library_.processes(device_, &count, infos.data()) == kSuccess)
      for (unsigned int i = 0; i < count && i < kMostProcesses; ++i) {
        DeviceHealth::Process process{infos[i].pid, std::nullopt};
        if (infos[i].memory != kUnknownMemory) process.memory_bytes = infos[i].memory;
        health.processes.push_back(process);
      }
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
