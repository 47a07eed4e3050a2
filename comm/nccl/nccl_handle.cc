#include "comm/nccl/nccl_handle.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/cuda/check.h"
#include "base/log.h"

namespace braid::comm {
namespace {

constexpr std::chrono::seconds kEndTime{20};
constexpr std::chrono::milliseconds kLook{1};

void finalize(ncclComm_t comm) {
  ncclResult_t state = ncclCommFinalize(comm);
  while (state == ncclInProgress) {
    std::this_thread::sleep_for(kLook);
    if (ncclCommGetAsyncError(comm, &state) != ncclSuccess) break;
  }
  if (state != ncclSuccess) log_warning("[nccl] ncclCommFinalize: {}", ncclGetErrorString(state));
  ncclCommDestroy(comm);
}

void abort_now(ncclComm_t comm) { ncclCommAbort(comm); }

}  // namespace

ErrorCode error_code_of(ncclResult_t result) {
  switch (result) {
    case ncclUnhandledCudaError:
      return ErrorCode::DeviceError;
    case ncclInvalidArgument:
    case ncclInvalidUsage:
      return ErrorCode::InvalidArgument;
    case ncclInternalError:
      return ErrorCode::Internal;
    default:  // the system, the network or another rank
      return ErrorCode::Unavailable;
  }
}

void check_nccl(ncclResult_t result, const char* call, int rank) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  throw_error(error_code_of(result), fmt::format("[nccl] rank {}: {}: {}: {}", rank, call,
                                                 ncclGetErrorString(result), ncclGetLastError(nullptr)));
}

NcclHandle::NcclHandle(int rank, int size, int device, const ncclUniqueId& id)
    : device_(device), flag_(sizeof(int)) {
  *reinterpret_cast<int*>(flag_.get()) = 0;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t begun = ncclCommInitRankConfig(&comm_, size, id, rank, &config);
  try {
    check_nccl(begun, "ncclCommInitRankConfig", rank);
  } catch (...) {
    if (comm_) abort();
    throw;
  }
}

NcclHandle::~NcclHandle() {
  bool aborted = false;
  {
    std::lock_guard lock(mu_);
    aborted = aborted_;
    if (!aborted_ && comm_) end_on_thread(&finalize);
    aborted_ = true;
  }
  if (!ended_.valid() || ended_.wait_for(kEndTime) == std::future_status::ready) return;
  log_error("[nccl] the communicator did not end within {} s", kEndTime.count());
  if (aborted) std::_Exit(kExitPeerLost);
}

std::optional<ncclResult_t> NcclHandle::status() {
  return call([](ncclComm_t comm) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
    return asked == ncclSuccess ? state : asked;
  });
}

std::string NcclHandle::last_error() {
  std::string text;
  call([&](ncclComm_t comm) {
    text = ncclGetLastError(comm);
    return ncclSuccess;
  });
  return text;
}

void NcclHandle::abort() noexcept {
  std::lock_guard lock(mu_);
  if (aborted_ || !comm_) return;
  aborted_ = true;
  std::atomic_ref(*reinterpret_cast<int*>(flag_.get())).store(1);
  try {
    end_on_thread(&abort_now);
  } catch (const std::exception& error) {
    log_error("[nccl] cannot start a thread to abort: {}", error.what());
  }
}

void NcclHandle::end_on_thread(void (*end)(ncclComm_t comm)) {
  std::promise<void> done;
  ended_ = done.get_future();
  std::thread([comm = comm_, device = device_, end, done = std::move(done)]() mutable {
    cuda::log_failure(cudaSetDevice(device), "cudaSetDevice");
    end(comm);
    done.set_value();
  }).detach();  // a hung one is given up, not joined
}

}  // namespace braid::comm
