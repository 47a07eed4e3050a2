// The GPUs of this host as the driver's management library (NVML) knows them: `braid devices`. No context is
// made and nothing of a GPU changes, so it is of use beside jobs, and where this build has no CUDA. What a
// driver does not say is left out. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace braid::cli {

struct ListedDevice {
  std::string name, uuid, bus_id;
  std::uint64_t memory_bytes = 0, free_bytes = 0;
  std::optional<int> multiprocessors;  // of compute capabilities that are known
  std::string compute_capability;      // "9.0"
  bool exclusive = false;              // one process, or one server of MPS, may use it at a time
  std::optional<int> processes;        // that compute on it
  std::optional<bool> mig;             // on or off; absent: it cannot be cut
  struct Instance {
    std::string name, uuid;
    std::uint64_t memory_bytes = 0;
  };
  std::vector<Instance> instances;  // of MIG
  /// To each device, by its index: "18 NVLink", or what lies between on the PCIe bus.
  std::vector<std::string> links;
};

struct DeviceList {
  std::string why_none;  // empty: the library answers
  std::string driver;
  std::vector<ListedDevice> devices;
};

DeviceList list_devices();

/// Whether processes of this environment would be clients of MPS.
struct MpsDaemon {
  std::filesystem::path pipes;  // where clients look for its control daemon
  bool has_pipes = false;       // one is there, or was
  bool runs = false;            // its process is seen from here; a container may not see it
};
MpsDaemon find_mps_daemon();

}  // namespace braid::cli
