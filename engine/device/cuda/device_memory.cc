#include "engine/device/cuda/device_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/cuda/await.h"
#include "base/cuda/check.h"
#include "base/error.h"
#include "base/log.h"

namespace braid::cuda {
namespace {

constexpr std::size_t kHoldersNamed = 4;
constexpr std::uint64_t kSmallest = 256;

/// Libraries, other pools and captured graphs need some as well.
std::uint64_t most_of_free(int device) {
  const DeviceGuard guard(device);
  std::size_t free = 0, total = 0;
  BRAID_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return free / 10 * 9;
}

}  // namespace

void destroy_pool(cudaMemPool_t pool) noexcept {
  log_failure(cudaMemPoolDestroy(pool), "cudaMemPoolDestroy");
}

DeviceMemory::DeviceMemory(const AcceleratorOptions& options)
    : device_(options.ordinal),
      limit_(options.memory_limit == 0 && options.memory_up_front ? most_of_free(options.ordinal)
                                                                  : options.memory_limit),
      wait_timeout_(options.wait_timeout) {
  const DeviceGuard guard(device_);
  stream_ = make_stream();
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, device_};
  cudaMemPool_t pool = nullptr;
  BRAID_CUDA_CHECK(cudaMemPoolCreate(&pool, &properties));
  pool_ = Owned<cudaMemPool_t, destroy_pool>(pool);
  share_with_peers();
  if (!options.memory_up_front) return;
  std::uint64_t keep = UINT64_MAX;
  BRAID_CUDA_CHECK(cudaMemPoolSetAttribute(pool_.get(), cudaMemPoolAttrReleaseThreshold, &keep));
  void* const all = take(limit_);
  if (!all) refuse(limit_, "the pool", free_bytes());
  give_back(all);
}

/// Ranks of one process exchange addresses (NCCL), which ordinary memory allows and a pool's must be told to.
void DeviceMemory::share_with_peers() const {
  int count = 0;
  BRAID_CUDA_CHECK(cudaGetDeviceCount(&count));
  for (int peer = 0; peer < count; ++peer) {
    int reachable = 0;
    if (peer == device_) continue;
    if (cudaDeviceCanAccessPeer(&reachable, peer, device_) != cudaSuccess) {
      cudaGetLastError();  // nor is it the error of the next launch
      continue;
    }
    if (!reachable) continue;
    cudaMemAccessDesc access{};
    access.location = {cudaMemLocationTypeDevice, peer};
    access.flags = cudaMemAccessFlagsProtReadWrite;
    BRAID_CUDA_CHECK(cudaMemPoolSetAccess(pool_.get(), &access, 1));
  }
}

std::shared_ptr<std::byte[]> DeviceMemory::allocate(std::uint64_t bytes, const std::string& purpose) {
  const DeviceGuard guard(device_);
  book(bytes, purpose);
  void* const memory = take(std::max(bytes, kSmallest));
  if (!memory) {
    unbook(bytes, purpose);
    refuse(bytes, purpose, free_bytes());
  }
  return {static_cast<std::byte*>(memory), [self = shared_from_this(), bytes, purpose](std::byte* p) {
            self->give_back(p);
            self->unbook(bytes, purpose);
          }};
}

std::uint64_t DeviceMemory::in_use() const {
  std::lock_guard lock(mu_);
  return in_use_;
}

void* DeviceMemory::take(std::uint64_t bytes) {
  void* memory = nullptr;
  const cudaError_t error = cudaMallocFromPoolAsync(&memory, bytes, pool_.get(), stream_.get());
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  BRAID_CUDA_CHECK(error);
  await_stream(stream_.get(), WaitContext::with_timeout(wait_timeout_),
               fmt::format("cuda:{}: taking {} bytes", device_, bytes));
  return memory;
}

void DeviceMemory::give_back(void* memory) noexcept {
  if (silent_.load(std::memory_order_relaxed)) return;
  int previous = 0;
  log_failure(cudaGetDevice(&previous), "cudaGetDevice");
  log_failure(cudaSetDevice(device_), "cudaSetDevice");
  const WaitContext wait = WaitContext::with_timeout(wait_timeout_);
  try {
    // Work of any stream may still use it.
    await_device(device_, wait, fmt::format("cuda:{}: giving memory back", device_));
    BRAID_CUDA_CHECK(cudaFreeAsync(memory, stream_.get()));
    await_stream(stream_.get(), wait, fmt::format("cuda:{}: giving memory back", device_));
    BRAID_CUDA_CHECK(cudaStreamSynchronize(stream_.get()));  // at once; the pool lets go of memory in it only
  } catch (const DeadlineExceeded& error) {
    silent_.store(true, std::memory_order_relaxed);
    log_error("{}; what is given back from now on is not used again", error.message());
  } catch (const std::exception& error) {
    log_error("{}", error.what());
  }
  log_failure(cudaSetDevice(previous), "cudaSetDevice");
}

void DeviceMemory::book(std::uint64_t bytes, const std::string& purpose) {
  std::unique_lock lock(mu_);
  if (limit_ != 0 && in_use_ + bytes > limit_) {
    lock.unlock();
    refuse(bytes, purpose, fmt::format("the limit is {} bytes", limit_));
  }
  in_use_ += bytes;
  holders_[purpose] += bytes;
}

void DeviceMemory::unbook(std::uint64_t bytes, const std::string& purpose) {
  std::lock_guard lock(mu_);
  in_use_ -= bytes;
  holders_[purpose] -= bytes;
}

std::string DeviceMemory::free_bytes() const {
  std::size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  return fmt::format("{} of {} bytes are free", free, total);
}

void DeviceMemory::refuse(std::uint64_t bytes, const std::string& purpose, const std::string& why) const {
  std::lock_guard lock(mu_);
  std::vector<std::pair<std::uint64_t, std::string>> largest;
  for (const auto& [name, held] : holders_)
    if (held != 0) largest.emplace_back(held, name);
  std::sort(largest.rbegin(), largest.rend());
  std::string text = fmt::format("cuda:{}: no memory for {} bytes of {}: {}, {} are in use", device_, bytes,
                                 purpose, why, in_use_);
  for (std::size_t i = 0; i < largest.size() && i < kHoldersNamed; ++i)
    text += fmt::format("{}{} {}", i == 0 ? "; largest: " : ", ", largest[i].second, largest[i].first);
  throw OutOfMemory(text);
}

}  // namespace braid::cuda
