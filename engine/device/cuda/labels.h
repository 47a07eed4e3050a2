// What the process calls its CUDA streams, and the node whose work is being enqueued now, for measurement.
// Thread rule: any thread. A thread that has set no label has the one that was set last: NCCL enqueues on
// threads of its own while the thread that issues waits for it.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <utility>
#include <vector>

namespace braid::cuda {

struct WorkLabel {
  const char* node = nullptr;  // null: none
  const char* stream = nullptr;
};

WorkLabel current_label();

void remember_stream(cudaStream_t stream, const std::string& name);
void forget_stream(cudaStream_t stream);
std::vector<std::pair<cudaStream_t, std::string>> remembered_streams();

}  // namespace braid::cuda
