#include "engine/device/cuda/sm_partition.h"

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "base/cuda/check.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/device/accelerator.h"

namespace braid::cuda {

#if CUDART_VERSION >= 12050

namespace {

/// Functions of the driver, which is not linked: there are machines without one.
struct Driver {
  PFN_cuDeviceGetDevResource_v12040 get_resource = nullptr;
  PFN_cuDevSmResourceSplitByCount_v12040 split = nullptr;
  PFN_cuDevResourceGenerateDesc_v12040 describe = nullptr;
  PFN_cuGreenCtxCreate_v12040 create = nullptr;
  PFN_cuGreenCtxDestroy_v12040 destroy = nullptr;
  PFN_cuGreenCtxStreamCreate_v12050 make_stream = nullptr;

  static const Driver& get() {
    static const Driver driver = load();
    return driver;
  }
  bool complete() const { return get_resource && split && describe && create && destroy && make_stream; }

 private:
  static Driver load() {
    Driver its;
    find("cuDeviceGetDevResource", 12040, its.get_resource);
    find("cuDevSmResourceSplitByCount", 12040, its.split);
    find("cuDevResourceGenerateDesc", 12040, its.describe);
    find("cuGreenCtxCreate", 12040, its.create);
    find("cuGreenCtxDestroy", 12040, its.destroy);
    find("cuGreenCtxStreamCreate", 12050, its.make_stream);
    return its;
  }
  template <class Function>
  static void find(const char* name, unsigned version, Function& function) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    if (cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result) == cudaSuccess &&
        result == cudaDriverEntryPointSuccess)
      function = reinterpret_cast<Function>(found);
    else
      cudaGetLastError();
  }
};

void check(CUresult result, int device, const char* call) {
  if (result != CUDA_SUCCESS)
    throw DeviceError(fmt::format("cuda:{}: {} failed with {} (streams.partition)", device, call,
                                  static_cast<int>(result)));
}

/// All multiprocessors of a device, in the smallest units that it gives.
struct Split {
  std::vector<CUdevResource> units;
  CUdevResource beyond{};
  SmUnits sizes;
};

Split split(int device) {
  const Driver& driver = Driver::get();
  CUdevResource all{};
  check(driver.get_resource(device, &all, CU_DEV_RESOURCE_TYPE_SM), device, "cuDeviceGetDevResource");
  const unsigned least = std::max(1U, all.sm.minSmPartitionSize);
  unsigned count = 0;
  check(driver.split(nullptr, &count, &all, nullptr, 0, least), device, "cuDevSmResourceSplitByCount");
  Split its;
  its.units.resize(count);
  check(driver.split(its.units.data(), &count, &all, &its.beyond, 0, least), device,
        "cuDevSmResourceSplitByCount");
  its.units.resize(count);
  const int size = its.units.empty() ? 1 : static_cast<int>(its.units.front().sm.smCount);
  const int held = size * static_cast<int>(count);
  its.sizes = {static_cast<int>(count), size, std::max(0, static_cast<int>(all.sm.smCount) - held)};
  if (its.beyond.type != CU_DEV_RESOURCE_TYPE_SM) its.sizes.beyond = 0;
  return its;
}

}  // namespace

SmPartition::SmPartition(int device, const std::vector<SmShare>& shares) : device_(device), names_(shares) {
  const Driver& driver = Driver::get();
  if (!driver.complete())
    throw InvalidArgument(
        fmt::format("streams.partition: the driver of cuda:{} gives no shares of multiprocessors; it has to "
                    "support CUDA 12.5",
                    device));
  Split all = split(device);
  const std::vector<int> units = share_out(shares, all.sizes);
  auto next = all.units.begin();
  std::string said;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    std::vector<CUdevResource> own(next, next + units[i]);
    next += units[i];
    int count = units[i] * all.sizes.size;
    if (shares[i].unit == SmShare::Unit::Rest && all.sizes.beyond > 0) {
      own.push_back(all.beyond);
      count += all.sizes.beyond;
    }
    Share& share = shares_.emplace_back(Share{shares[i], count});
    said += fmt::format("{}{} for '{}'", said.empty() ? "" : ", ", count, share.said.match);
    if (share.said.match.empty()) continue;
    CUdevResourceDesc description{};
    check(driver.describe(&description, own.data(), static_cast<unsigned>(own.size())), device,
          "cuDevResourceGenerateDesc");
    check(driver.create(&share.context, description, device, CU_GREEN_CTX_DEFAULT_STREAM), device,
          "cuGreenCtxCreate");
  }
  log_info("cuda:{}: of {} multiprocessors {}", device, all.sizes.all(), said);
}

SmPartition::~SmPartition() {
  for (const Share& share : shares_) {
    if (!share.context) continue;
    if (!share.used)
      log_warning("streams.partition '{}' had no effect: no stream has such a name", share.said.text);
    if (const CUresult result = Driver::get().destroy(share.context); result != CUDA_SUCCESS)
      log_warning("cuGreenCtxDestroy failed with {}", static_cast<int>(result));
  }
}

Stream SmPartition::make_stream(const std::string& name, int priority) {
  const int index = names_.share_of(name);
  if (index < 0) return {};
  Share& share = shares_[static_cast<std::size_t>(index)];
  if (!share.context) return {};
  int least = 0, greatest = 0;
  BRAID_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CUstream stream = nullptr;
  check(Driver::get().make_stream(&stream, share.context, CU_STREAM_NON_BLOCKING,
                                  std::clamp(priority, greatest, least)),
        device_, "cuGreenCtxStreamCreate");
  share.used = true;
  log_debug("cuda:{}: stream {} has {} multiprocessors ('{}')", device_, name, share.multiprocessors,
            share.said.text);
  return Stream(stream);
}

#else

SmPartition::SmPartition(int device, const std::vector<SmShare>& shares) : device_(device), names_(shares) {
  throw InvalidArgument("streams.partition needs a build with CUDA 12.5 or newer");
}
SmPartition::~SmPartition() = default;
Stream SmPartition::make_stream(const std::string&, int) { return {}; }

#endif

namespace {

struct Partitions {
  std::mutex mu;
  std::map<const Accelerator*, std::unique_ptr<SmPartition>> of;  // guarded by mu

  static Partitions& all() {
    static auto* const partitions = new Partitions;  // devices may go at the very end
    return *partitions;
  }
};

}  // namespace

Stream make_stream_of_share(const Accelerator& device, const std::string& name, int priority) {
  Partitions& all = Partitions::all();
  std::lock_guard lock(all.mu);
  const auto its = all.of.find(&device);
  return its == all.of.end() ? Stream() : its->second->make_stream(name, priority);
}

void forget_partition(const Accelerator& device) {
  Partitions& all = Partitions::all();
  std::lock_guard lock(all.mu);
  all.of.erase(&device);
}

}  // namespace braid::cuda

namespace braid {

void share_out(Accelerator& device, const std::vector<SmShare>& shares) {
  if (shares.empty()) return;
  const int ordinal = device.options().ordinal;
  const cuda::DeviceGuard guard(ordinal);
  auto made = std::make_unique<cuda::SmPartition>(ordinal, shares);
  cuda::Partitions& all = cuda::Partitions::all();
  std::lock_guard lock(all.mu);
  all.of[&device] = std::move(made);
}

}  // namespace braid
