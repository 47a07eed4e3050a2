// A management library of two GPUs, as much of it as `braid devices` asks for. The second is cut into two
// instances. FAKE_NVML_STATUS is what nvmlInit returns.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr int kSuccess = 0, kNotFound = 6;
struct Memory {
  unsigned long long total, free, used;
};
struct PciInfo {
  char legacy_bus_id[16];
  unsigned domain, bus, device, pci_device_id, subsystem_id;
  char bus_id[32];
};

/// 1, 2: GPUs; 11, 12: instances of the second.
int number_of(void* device) { return static_cast<int>(reinterpret_cast<std::intptr_t>(device)); }
void* device_of(int number) { return reinterpret_cast<void*>(static_cast<std::intptr_t>(number)); }

}  // namespace

extern "C" {

int nvmlInit_v2() {
  const char* const status = std::getenv("FAKE_NVML_STATUS");
  return status ? std::atoi(status) : kSuccess;
}
int nvmlShutdown() { return kSuccess; }
int nvmlSystemGetDriverVersion(char* text, unsigned bytes) {
  std::snprintf(text, bytes, "599.1");
  return kSuccess;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = device_of(static_cast<int>(index) + 1);
  return kSuccess;
}
int nvmlDeviceGetName(void* device, char* text, unsigned bytes) {
  std::snprintf(text, bytes, number_of(device) > 10 ? "MIG 3g.40gb" : "Test GPU %d", number_of(device));
  return kSuccess;
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned bytes) {
  std::snprintf(text, bytes, "GPU-%d", number_of(device));
  return kSuccess;
}
int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* info) {
  std::snprintf(info->bus_id, sizeof(info->bus_id), "00000000:%02d:00.0", number_of(device));
  return kSuccess;
}
int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  *memory = {(number_of(device) > 10 ? 40ULL : 80ULL) << 30, 64ULL << 30, 16ULL << 30};
  return kSuccess;
}
int nvmlDeviceGetNumGpuCores(void*, unsigned* cores) {
  *cores = 132 * 128;
  return kSuccess;
}
int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  *major = 9;
  *minor = 0;
  return kSuccess;
}
int nvmlDeviceGetComputeMode(void* device, int* mode) {
  *mode = number_of(device) == 2 ? 3 : 0;
  return kSuccess;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, void*) {
  *count = 1;
  return kSuccess;
}
int nvmlDeviceGetMigMode(void* device, unsigned* now, unsigned* pending) {
  *now = *pending = number_of(device) == 2 ? 1 : 0;
  return kSuccess;
}
int nvmlDeviceGetMaxMigDeviceCount(void*, unsigned* count) {
  *count = 7;
  return kSuccess;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void*, unsigned index, void** device) {
  if (index != 0 && index != 3) return kNotFound;
  *device = device_of(index == 0 ? 11 : 12);
  return kSuccess;
}
int nvmlDeviceGetNvLinkState(void*, unsigned link, int* active) {
  *active = link < 4 ? 1 : 0;
  return kSuccess;
}
int nvmlDeviceGetP2PStatus(void* from, void*, int, int* status) {
  *status = number_of(from) == 1 ? 0 : 1;  // one way alone, so that both texts are seen
  return kSuccess;
}
int nvmlDeviceGetTopologyCommonAncestor(void*, void*, int* level) {
  *level = 50;
  return kSuccess;
}

}  // extern "C"
