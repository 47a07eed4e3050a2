#include "engine/device/cuda/labels.h"

#include <nvtx3/nvToolsExt.h>

#include <mutex>

#include "engine/device/activity.h"

namespace braid {
namespace cuda {
namespace {

struct Labels {
  std::mutex mu;
  WorkLabel label;                                            // guarded by mu, as what follows
  std::vector<std::pair<cudaStream_t, std::string>> streams;  // in the order in which they were made
};

Labels& labels() {
  static auto* const all = new Labels;  // lives as long as the process: callbacks of libraries read it
  return *all;
}

}  // namespace

WorkLabel current_label() {
  std::lock_guard lock(labels().mu);
  return labels().label;
}

void remember_stream(cudaStream_t stream, const std::string& name) {
  std::lock_guard lock(labels().mu);
  labels().streams.emplace_back(stream, name);
}

void forget_stream(cudaStream_t stream) {
  std::lock_guard lock(labels().mu);
  std::erase_if(labels().streams, [&](const auto& known) { return known.first == stream; });
}

std::vector<std::pair<cudaStream_t, std::string>> remembered_streams() {
  std::lock_guard lock(labels().mu);
  return labels().streams;
}

}  // namespace cuda

void begin_device_work(const char* node, const char* stream) noexcept {
  nvtxRangePushA(node);
  std::lock_guard lock(cuda::labels().mu);
  cuda::labels().label = {node, stream};
}

void end_device_work() noexcept {
  nvtxRangePop();
  std::lock_guard lock(cuda::labels().mu);
  cuda::labels().label = {};
}

}  // namespace braid
