// The shares of a CUDA device's multiprocessors that streams of some names have (engine/device/sm_shares.h):
// green contexts of the device's primary context. Memory, kernels, events and graphs are the primary
// context's; kernels of a stream of a share run on its multiprocessors, in captured graphs too.
//
// Partitions stand in a table beside the devices, so that kernels, which compile against a device's header,
// do not know of them. Thread rule: any thread; a device's streams go before its partition.
#pragma once

#include <cuda.h>

#include <string>
#include <vector>

#include "base/cuda/handles.h"
#include "engine/device/sm_shares.h"

namespace braid::cuda {

class SmPartition {
 public:
  /// The device has its primary context. Throws: as share_out().
  SmPartition(int device, const std::vector<SmShare>& shares);
  /// Logs entries that no stream had.
  ~SmPartition();
  SmPartition(const SmPartition&) = delete;
  SmPartition& operator=(const SmPartition&) = delete;

  /// Of the share that fits the name; none where no entry does. `priority` is CUDA's. Throws: DeviceError.
  Stream make_stream(const std::string& name, int priority);

 private:
  struct Share {
    SmShare said;
    int multiprocessors = 0;
    bool used = false;
    CUgreenCtx context = nullptr;  // null: set aside
  };

  const int device_;
  const SmShareNames names_;
  std::vector<Share> shares_;
};

/// As SmPartition::make_stream(), of the device's partition; none where it has no partition.
Stream make_stream_of_share(const Accelerator& device, const std::string& name, int priority);
/// The device goes, and its streams have gone.
void forget_partition(const Accelerator& device);

}  // namespace braid::cuda
