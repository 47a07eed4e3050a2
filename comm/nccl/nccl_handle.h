// Owner of one NCCL communicator. It is non-blocking: a call that NCCL has not finished returns
// ncclInProgress and is asked about until it is. Ending one takes other ranks, CUDA graphs that refer to it,
// or a hung device, so both ways of ending run on a thread of their own, with a deadline:
//   abort()     tells kernels that run now to end; returns at once. NCCL frees the rest when the graphs that
//               captured its operations are destroyed
//   destructor  finalizes what was not aborted. When an abort does not come to an end, the process is beyond
//               repair and ends with exit code 138
// Thread rule: any thread; calls are made one at a time.
#pragma once

#include <nccl.h>

#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/cuda/handles.h"
#include "base/error.h"

namespace braid::comm {

class NcclHandle {
 public:
  /// Begins to connect; status() tells when it is done. Throws: Unavailable, InvalidArgument.
  NcclHandle(int rank, int size, int device, const ncclUniqueId& id);
  ~NcclHandle();
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  /// What `f(communicator)` returns; nothing after abort().
  template <class F>
  std::optional<ncclResult_t> call(F&& f) {
    std::lock_guard lock(mu_);
    if (aborted_) return std::nullopt;
    return f(comm_);
  }
  /// Of the last call, and of the network: ncclInProgress until it is finished. Nothing after abort().
  std::optional<ncclResult_t> status();
  /// NCCL's text about its last error.
  std::string last_error();

  void abort() noexcept;
  /// Page-locked: not 0 from abort() on, for kernels of our own that wait for other ranks.
  const int* aborted() const { return reinterpret_cast<const int*>(flag_.get()); }

 private:
  /// Runs `end` on a thread of its own.
  void end_on_thread(void (*end)(ncclComm_t comm));

  const int device_;
  const cuda::PinnedMemory flag_;
  std::mutex mu_;
  ncclComm_t comm_ = nullptr;  // guarded by mu_, as what follows
  bool aborted_ = false;
  std::future<void> ended_;
};

/// Throws when an NCCL call fails: with the call's name, the rank and NCCL's text.
void check_nccl(ncclResult_t result, const char* call, int rank);
ErrorCode error_code_of(ncclResult_t result);

}  // namespace braid::comm
