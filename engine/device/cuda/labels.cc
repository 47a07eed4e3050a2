#include "engine/device/cuda/labels.h"

#include <nvtx3/nvToolsExt.h>

#include <mutex>

#include "engine/device/activity.h"

namespace braid {
namespace cuda {
namespace {

struct Labels {
  std::mutex mu;
  WorkLabel last;                                             // guarded by mu, as what follows
  std::vector<std::pair<cudaStream_t, std::string>> streams;  // in the order in which they were made
};

thread_local WorkLabel label;  // of this thread

Labels& labels() {
  static auto* const all = new Labels;  // lives as long as the process: callbacks of libraries read it
  return *all;
}

}  // namespace

WorkLabel current_label() {
  if (label.node) return label;
  std::lock_guard lock(labels().mu);
  return labels().last;
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
  cuda::label = {node, stream};
  std::lock_guard lock(cuda::labels().mu);
  cuda::labels().last = cuda::label;
}

void end_device_work() noexcept {
  nvtxRangePop();
  cuda::label = {};
  std::lock_guard lock(cuda::labels().mu);
  cuda::labels().last = {};
}

}  // namespace braid
