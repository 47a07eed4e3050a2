#include "worker/device.h"

#include <fmt/format.h>

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "proto/job.pb.h"

namespace braid::worker {
namespace {

/// Whether the visible devices are as many as the workers of this host, as far as this process knows them.
bool enough_devices(const launch::ClusterSpec& cluster) {
  const int count = cuda_device_count();
  const bool one_host = cluster.local_world >= static_cast<int>(cluster.tasks().size());
  if (count == 0 || !one_host || cluster.world <= count) return count > 0;
  log_warning(
      "device: the {} workers of this host compute on the CPU, since there {}; set --device cuda and "
      "start fewer to use {}",
      cluster.world, count == 1 ? "is 1 GPU" : fmt::format("are {} GPUs", count), count == 1 ? "it" : "them");
  return false;
}

}  // namespace

void resolve_device(proto::Job& job, const launch::ClusterSpec& cluster) {
  proto::Runtime& runtime = *job.mutable_runtime();
  const bool nccl = job.strategy().kind() == proto::Strategy::ALLREDUCE &&
                    job.strategy().backend() == proto::Strategy::NCCL;
  if (nccl && runtime.device() == proto::Runtime::CPU)
    throw InvalidArgument(
        "strategy.backend NCCL is for GPUs, and the device is CPU: set --device cuda, or "
        "strategy.backend RING or MPI");
  if (runtime.device() == proto::Runtime::AUTO)
    runtime.set_device(nccl || enough_devices(cluster) ? proto::Runtime::CUDA : proto::Runtime::CPU);
}

std::shared_ptr<Accelerator> open_device(const proto::Job& job, const launch::ClusterSpec& cluster) {
  if (job.runtime().device() != proto::Runtime::CUDA) return nullptr;
  const int count = cuda_device_count();
  if (count > 0 && cluster.local_rank >= count)
    throw InvalidArgument(fmt::format(
        "process {} of this host needs a GPU of its own, and there {} (CUDA_VISIBLE_DEVICES: {}): start as "
        "many workers as there are GPUs, or set --device cpu",
        cluster.local_rank, count == 1 ? "is 1" : fmt::format("are {}", count),
        env_string("CUDA_VISIBLE_DEVICES").value_or("not set")));
  AcceleratorOptions options;
  options.ordinal = cluster.local_rank;
  options.memory_limit = job.runtime().device_memory_limit();
  options.tf32 = !job.runtime().no_tf32();
  std::shared_ptr<Accelerator> device = open_cuda(options);
  log_info("device: {}, TF32 {}", device->description(), options.tf32 ? "on" : "off");
  return device;
}

}  // namespace braid::worker
