#include "worker/process/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/device/device_health.h"
#include "engine/device/sm_shares.h"
#include "proto/job.pb.h"
#include "worker/job/job.h"

namespace braid::worker {
namespace {

/// The devices that processes of this host take, in their order. Throws: InvalidArgument for a list that is
/// not one of visible devices.
std::vector<int> usable_devices(const proto::Job& job) {
  const int count = cuda_device_count();
  if (count == 0) return {};
  std::vector<int> devices = visible_devices(job);
  for (const int device : devices)
    if (device >= count)
      throw InvalidArgument(fmt::format("runtime.visible_device_list '{}': there is no GPU {}, {} {} visible",
                                        job.runtime().visible_device_list(), device, count,
                                        count == 1 ? "is" : "are"));
  if (devices.empty())
    for (int i = 0; i < count; ++i) devices.push_back(i);
  return devices;
}

bool is_mirrored(const proto::Job& job) { return job.strategy().kind() == proto::Strategy::MIRRORED; }

/// As the job says it, of each process; 0: all that there are, or another strategy.
int devices_of_mirrored(const proto::Job& job) {
  return is_mirrored(job) ? job.strategy().mirrored().devices() : 0;
}

/// srun that binds GPUs (--gpus-per-task, --gpu-bind) shows each task its own alone.
bool launcher_binds_devices() {
  for (const char* variable : {"SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND", "SLURM_TRES_PER_TASK"})
    if (env_string(variable)) return true;
  return false;
}

/// Whether the visible devices are as many as the workers of this host, as far as this process knows them.
bool enough_devices(const proto::Job& job, const launch::ClusterSpec& cluster) {
  const int count = static_cast<int>(usable_devices(job).size());
  const bool one_host = cluster.local_world >= static_cast<int>(cluster.tasks().size());
  const int workers = cluster.world * std::max(1, devices_of_mirrored(job));
  if (count == 0 || !one_host || (count == 1 && launcher_binds_devices()) || workers <= count)
    return count > 0;
  log_warning(
      "device: the {} {} of this host compute on the CPU, because there {}; set --device cuda and "
      "start fewer to use {}",
      workers, is_mirrored(job) ? "replicas" : "workers",
      count == 1 ? "is 1 GPU" : fmt::format("are {} GPUs", count), count == 1 ? "it" : "them");
  return false;
}

/// 0: none. Of two limits the smaller one.
std::uint64_t memory_limit(const proto::Job& job, int ordinal) {
  const std::uint64_t limit = job.runtime().device_memory_limit();
  const double fraction = job.runtime().device_memory_fraction();
  if (fraction == 0) return limit;
  const auto part = static_cast<std::uint64_t>(fraction * static_cast<double>(cuda_device_memory(ordinal)));
  return limit == 0 ? part : std::min(limit, part);
}

}  // namespace

void resolve_device(proto::Job& job, const launch::ClusterSpec& cluster) {
  proto::Runtime& runtime = *job.mutable_runtime();
  const bool nccl = has_communicator(job) && job.strategy().backend() == proto::Strategy::NCCL;
  if (nccl && runtime.device() == proto::Runtime::CPU)
    throw InvalidArgument(
        "strategy.backend NCCL is for GPUs, and the device is CPU: set --device cuda, or "
        "strategy.backend RING or MPI");
  if (runtime.device() == proto::Runtime::AUTO)
    runtime.set_device(nccl || enough_devices(job, cluster) ? proto::Runtime::CUDA : proto::Runtime::CPU);
}

int replicas_of_process(const proto::Job& job, const launch::ClusterSpec& cluster) {
  if (!is_mirrored(job)) return 1;
  if (const int said = devices_of_mirrored(job); said > 0) return said;
  if (job.runtime().device() != proto::Runtime::CUDA) return 1;
  const int count = static_cast<int>(usable_devices(job).size());
  return std::max(1, launcher_binds_devices() ? count : count / std::max(1, cluster.local_world));
}

std::optional<int> device_ordinal(const proto::Job& job, const launch::ClusterSpec& cluster, int replica) {
  if (job.runtime().device() != proto::Runtime::CUDA) return std::nullopt;
  const std::vector<int> devices = usable_devices(job);
  const int count = static_cast<int>(devices.size());
  const int replicas = replicas_of_process(job, cluster);
  const bool bound = launcher_binds_devices() && (replicas > 1 || count == 1);
  const int place = bound ? replica : cluster.local_rank * replicas + replica;
  if (count > 0 && place >= count)
    throw InvalidArgument(fmt::format(
        "{} {} of this host needs a GPU of its own, and there {} (CUDA_VISIBLE_DEVICES: {}): start as "
        "many {} as there are GPUs, or set --device cpu",
        replicas > 1 ? "replica" : "process", place, count == 1 ? "is 1" : fmt::format("are {}", count),
        env_string("CUDA_VISIBLE_DEVICES").value_or("not set"),
        replicas > 1 ? "replicas (strategy.mirrored.devices)" : "workers"));
  return count > 0 ? devices[static_cast<std::size_t>(place)] : 0;
}

std::shared_ptr<Accelerator> open_device(const proto::Job& job, const launch::ClusterSpec& cluster,
                                         int replica) {
  const std::optional<int> ordinal = device_ordinal(job, cluster, replica);
  if (!ordinal) return nullptr;
  AcceleratorOptions options;
  options.ordinal = *ordinal;
  options.memory_limit = memory_limit(job, options.ordinal);
  options.memory_up_front = job.runtime().device_memory_up_front();
  options.tf32 = uses_tf32(job);
  options.measure_products = job.runtime().measure_products();
  std::shared_ptr<Accelerator> device = open_cuda(options);
  const auto& partition = job.streams().partition();
  share_out(*device, parse_sm_shares(std::vector<std::string>(partition.begin(), partition.end())));
  log_info("device: {}, TF32 {}", device->description(), options.tf32 ? "on" : "off");
  return device;
}

}  // namespace braid::worker
