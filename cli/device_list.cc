#include "cli/device_list.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <fstream>

namespace braid::cli {
namespace {

// NVML by its documented C interface: nvml.h is not on every machine that has the driver.
constexpr const char* kLibrary = "libnvidia-ml.so.1";
constexpr int kSuccess = 0, kNvLinkCaps = 2, kProhibited = 2;
constexpr unsigned kMostLinks = 18, kNameBytes = 96, kMostProcesses = 64;
using Device = void*;

struct Memory {
  unsigned long long total, free, used;
};
struct PciInfo {  // nvmlPciInfo_t of the functions _v3
  char legacy_bus_id[16];
  unsigned domain, bus, device, pci_device_id, subsystem_id;
  char bus_id[32];
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
};

class Nvml {
 public:
  Nvml() : handle_(dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL)) {
    load(init, "nvmlInit_v2");
    load(shutdown, "nvmlShutdown");
    load(driver_version, "nvmlSystemGetDriverVersion");
    load(count, "nvmlDeviceGetCount_v2");
    load(by_index, "nvmlDeviceGetHandleByIndex_v2");
    load(name, "nvmlDeviceGetName");
    load(uuid, "nvmlDeviceGetUUID");
    load(pci, "nvmlDeviceGetPciInfo_v3");
    load(memory, "nvmlDeviceGetMemoryInfo");
    load(cores, "nvmlDeviceGetNumGpuCores");
    load(capability, "nvmlDeviceGetCudaComputeCapability");
    load(compute_mode, "nvmlDeviceGetComputeMode");
    load(processes, "nvmlDeviceGetComputeRunningProcesses_v3");
    load(mig_mode, "nvmlDeviceGetMigMode");
    load(most_instances, "nvmlDeviceGetMaxMigDeviceCount");
    load(instance, "nvmlDeviceGetMigDeviceHandleByIndex");
    load(link_state, "nvmlDeviceGetNvLinkState");
    load(peer_status, "nvmlDeviceGetP2PStatus");
    load(ancestor, "nvmlDeviceGetTopologyCommonAncestor");
  }
  ~Nvml() {
    if (started_) shutdown();
    if (handle_) dlclose(handle_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// Why it is of no use; empty: it is.
  std::string start() {
    if (!handle_) return "there is no NVIDIA driver here (libnvidia-ml.so.1)";
    if (!init || !shutdown || !count || !by_index || !name || !memory)
      return "libnvidia-ml.so.1 lacks functions that every driver has";
    if (const int status = init(); status != kSuccess)
      return fmt::format("nvmlInit failed with status {}{}", status,
                         status == 9 ? ": the driver is not loaded" : "");
    started_ = true;
    return {};
  }

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*driver_version)(char*, unsigned bytes) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, Device*) = nullptr;
  int (*name)(Device, char*, unsigned bytes) = nullptr;
  int (*uuid)(Device, char*, unsigned bytes) = nullptr;
  int (*pci)(Device, PciInfo*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  int (*cores)(Device, unsigned*) = nullptr;
  int (*capability)(Device, int* major, int* minor) = nullptr;
  int (*compute_mode)(Device, int*) = nullptr;
  int (*processes)(Device, unsigned* count, ProcessInfo*) = nullptr;
  int (*mig_mode)(Device, unsigned* current, unsigned* pending) = nullptr;
  int (*most_instances)(Device, unsigned*) = nullptr;
  int (*instance)(Device, unsigned, Device*) = nullptr;
  int (*link_state)(Device, unsigned link, int* active) = nullptr;
  int (*peer_status)(Device, Device, int capability, int* status) = nullptr;
  int (*ancestor)(Device, Device, int* level) = nullptr;

 private:
  template <class Function>
  void load(Function& function, const char* symbol) {
    if (handle_) function = reinterpret_cast<Function>(dlsym(handle_, symbol));
  }

  void* const handle_;
  bool started_ = false;
};

template <class Function>
std::string text_of(Function function, Device device) {
  std::array<char, kNameBytes> text{};
  return function && function(device, text.data(), kNameBytes) == kSuccess ? text.data() : "";
}

/// Float32 lanes of a multiprocessor; 0: not known.
int lanes_of(int major, int minor) {
  if (major == 7 || (major == 8 && minor == 0) || (major == 6 && minor == 0)) return 64;
  return major == 6 || major >= 8 ? 128 : 0;
}

void read_kind(const Nvml& nvml, Device device, ListedDevice& listed) {
  int major = 0, minor = 0;
  if (!nvml.capability || nvml.capability(device, &major, &minor) != kSuccess) return;
  listed.compute_capability = fmt::format("{}.{}", major, minor);
  unsigned cores = 0;
  if (const int lanes = lanes_of(major, minor);
      lanes > 0 && nvml.cores && nvml.cores(device, &cores) == kSuccess)
    listed.multiprocessors = static_cast<int>(cores) / lanes;
}

void read_instances(const Nvml& nvml, Device device, ListedDevice& listed) {
  unsigned now = 0, pending = 0, most = 0;
  if (!nvml.mig_mode || nvml.mig_mode(device, &now, &pending) != kSuccess) return;
  listed.mig = now != 0;
  if (now == 0 || !nvml.most_instances || !nvml.instance) return;
  if (nvml.most_instances(device, &most) != kSuccess) return;
  for (unsigned i = 0; i < most; ++i) {
    Device instance = nullptr;
    if (nvml.instance(device, i, &instance) != kSuccess) continue;
    Memory memory{};
    static_cast<void>(nvml.memory(instance, &memory));
    listed.instances.push_back({text_of(nvml.name, instance), text_of(nvml.uuid, instance), memory.total});
  }
}

ListedDevice read(const Nvml& nvml, Device device) {
  ListedDevice listed;
  listed.name = text_of(nvml.name, device);
  listed.uuid = text_of(nvml.uuid, device);
  PciInfo pci{};
  if (nvml.pci && nvml.pci(device, &pci) == kSuccess) listed.bus_id = pci.bus_id;
  Memory memory{};
  if (nvml.memory(device, &memory) == kSuccess) {
    listed.memory_bytes = memory.total;
    listed.free_bytes = memory.free;
  }
  read_kind(nvml, device, listed);
  int mode = 0;
  listed.exclusive = nvml.compute_mode && nvml.compute_mode(device, &mode) == kSuccess && mode > kProhibited;
  unsigned count = kMostProcesses;
  std::array<ProcessInfo, kMostProcesses> processes{};
  if (nvml.processes && nvml.processes(device, &count, processes.data()) == kSuccess)
    listed.processes = static_cast<int>(count);
  read_instances(nvml, device, listed);
  return listed;
}

std::string bus_between(int level) {
  switch (level) {
    case 0:
      return "one board";
    case 10:
      return "one PCIe switch";
    case 20:
      return "PCIe switches";
    case 30:
      return "a PCIe host bridge";
    case 40:
      return "PCIe of one NUMA node";
    case 50:
      return "between NUMA nodes";
    default:
      return "";
  }
}

std::string link_between(const Nvml& nvml, Device a, Device b) {
  int status = 1, level = -1;
  if (nvml.peer_status && nvml.link_state && nvml.peer_status(a, b, kNvLinkCaps, &status) == kSuccess &&
      status == 0) {
    int links = 0;
    for (unsigned link = 0; link < kMostLinks; ++link) {
      int active = 0;
      links += nvml.link_state(a, link, &active) == kSuccess && active != 0 ? 1 : 0;
    }
    if (links > 0) return fmt::format("{} NVLink", links);
  }
  if (nvml.ancestor && nvml.ancestor(a, b, &level) == kSuccess) return bus_between(level);
  return {};
}

}  // namespace

DeviceList list_devices() {
  DeviceList list;
  Nvml nvml;
  if (list.why_none = nvml.start(); !list.why_none.empty()) return list;
  std::array<char, kNameBytes> version{};
  if (nvml.driver_version && nvml.driver_version(version.data(), kNameBytes) == kSuccess)
    list.driver = version.data();
  unsigned count = 0;
  if (nvml.count(&count) != kSuccess) count = 0;
  std::vector<Device> devices;
  for (unsigned i = 0; i < count; ++i)
    if (Device device = nullptr; nvml.by_index(i, &device) == kSuccess) devices.push_back(device);
  for (const Device device : devices) {
    list.devices.push_back(read(nvml, device));
    for (const Device other : devices)
      list.devices.back().links.push_back(device == other ? "" : link_between(nvml, device, other));
  }
  if (devices.empty()) list.why_none = "the driver has no GPU that this process may see";
  return list;
}

MpsDaemon find_mps_daemon() {
  const char* const said = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  MpsDaemon mps{said && *said ? said : "/tmp/nvidia-mps"};
  std::error_code unseen;
  mps.has_pipes = std::filesystem::exists(mps.pipes / "control", unseen);
  std::ifstream file(mps.pipes / "nvidia-cuda-mps-control.pid");
  int pid = 0;
  mps.runs = file >> pid && std::filesystem::exists(fmt::format("/proc/{}", pid), unseen);
  return mps;
}

}  // namespace braid::cli
