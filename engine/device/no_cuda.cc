// Stands in for engine/device/cuda where the CUDA Toolkit was not found.
#include "base/error.h"
#include "engine/device/accelerator.h"
#include "engine/device/activity.h"
#include "engine/device/device_health.h"
#include "engine/device/gather_rows.h"
#include "engine/device/sm_shares.h"

namespace braid {

int cuda_device_count() { return 0; }

std::shared_ptr<Accelerator> open_cuda(const AcceleratorOptions&) {
  throw InvalidArgument("this build has no CUDA: configure with -DBRAID_CUDA=ON where the CUDA Toolkit is");
}

void share_out(Accelerator&, const std::vector<SmShare>&) {
  throw InvalidArgument("this build has no CUDA: streams.partition needs a device");
}

std::uint64_t cuda_device_memory(int) { throw InvalidArgument("this build has no CUDA"); }
std::string cuda_bus_id(int) { throw InvalidArgument("this build has no CUDA"); }

std::unique_ptr<DeviceHealthReader> open_device_health(const Accelerator&) { return nullptr; }

std::unique_ptr<ActivitySampler> make_activity_sampler(Accelerator&) {
  throw Unavailable("this build has no CUDA");
}

void gather_rows_now(Accelerator&, void*, const void*, std::span<const std::int64_t>, std::uint64_t) {
  throw Unavailable("this build has no CUDA");
}

void begin_device_work(const char*, const char*) noexcept {}
void end_device_work() noexcept {}

}  // namespace braid
