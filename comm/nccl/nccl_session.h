// What the operations of one rank go through: its communicator at NCCL, the thread that watches it, the way
// of the host's arrays through device memory, and who of the others is behind. Whatever an operation throws
// breaks the session, since the other ranks would wait for this one. Thread rule: one thread at a time makes
// calls; break_off() any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/cuda/handles.h"
#include "base/error.h"
#include "comm/communicator.h"
#include "comm/nccl/device_staging.h"
#include "comm/nccl/nccl_communicator.h"
#include "comm/nccl/nccl_handle.h"
#include "comm/nccl/nccl_watch.h"
#include "comm/nccl/peer_progress.h"

namespace braid::comm {

class NcclSession {
 public:
  /// Meets the other ranks and connects. `rendezvous` outlives this. Throws: DeadlineExceeded, Unavailable.
  NcclSession(const NcclOptions& options, Rendezvous& rendezvous, const WaitContext& wait);
  ~NcclSession();
  NcclSession(const NcclSession&) = delete;
  NcclSession& operator=(const NcclSession&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int device() const { return device_; }
  NcclHandle& handle() { return handle_; }
  NcclWatch& watch() { return watch_; }
  PeerProgress& peers() { return peers_; }
  void throw_if_broken() const;
  /// Unless it is broken already.
  void break_off(ErrorPtr error) { watch_.break_off(std::move(error)); }

  struct Input {
    const void* data;
    std::int64_t count;
  };
  struct Output {
    void* data;
    std::int64_t count;
  };
  /// What a call to NCCL said; nothing after an abort.
  using Enqueue = std::optional<ncclResult_t>;

  static std::size_t bytes_of(std::int64_t count, DType dtype) {
    return static_cast<std::size_t>(count) * dtype_size(dtype);
  }

  /// Begins an operation: runs `checks` of its arguments.
  template <class Checks>
  void check(std::string_view operation, Checks checks) {
    throw_if_broken();
    breaking([&] { checks(); });
    peers_.begin_collective(operation);
  }

  /// Collective work of the host that is no operation of NCCL. Gives what `work` gives.
  template <class Work>
  auto collectively(const WaitContext& wait, Work work) {
    return breaking([&] {
      const cuda::DeviceGuard guard(device_);
      const NcclWatch::Waiting waiting(watch_, wait);
      return work();
    });
  }

  /// Enqueues call(from, to, cudaStream_t) on the caller's stream, or takes the host's arrays through device
  /// memory.
  template <class Call>
  void run(std::string_view operation, Input input, Output output, DType dtype, StreamRef stream,
           const WaitContext& wait, Call call) {
    if (input.count == 0 && output.count == 0) return;
    if (stream.kind == StreamKind::Cuda) {
      enqueue(operation, stream, wait,
              [&] { return call(input.data, output.data, static_cast<cudaStream_t>(stream.native)); });
      return;
    }
    collectively(wait, [&] {
      const void* from = staging_.bring(input.data, bytes_of(input.count, dtype));
      void* to = staging_.room(bytes_of(output.count, dtype));
      finish_call(operation, call(from, to, staging_.stream()), wait);
      await_staging(operation, wait);
      staging_.take(output.data, bytes_of(output.count, dtype), wait);
    });
  }

  /// The same of call(), whose work is on the stream when this returns.
  template <class Call>
  void enqueue(std::string_view operation, StreamRef stream, const WaitContext& wait, Call call) {
    collectively(wait, [&] {
      finish_call(operation, call(), wait);
      watch_.after(static_cast<cudaStream_t>(stream.native), operation, wait);
    });
  }

 private:
  template <class Work>
  auto breaking(Work work) {
    try {
      return work();
    } catch (...) {
      watch_.break_off(capture_current_exception());
      throw;
    }
  }

  std::string what(std::string_view operation) const;
  /// NCCL enqueues on a thread of its own: what follows on the stream must not overtake it.
  void finish_call(std::string_view operation, Enqueue begun, const WaitContext& wait);
  /// Until what is on the stream of staging_ is done.
  void await_staging(std::string_view operation, const WaitContext& wait);
  /// Throws when the wait is over, or the communicator is broken.
  void give_up_when_late(std::string_view operation, const WaitContext& wait);

  const int rank_;
  const int size_;
  const int device_;
  PeerProgress peers_;
  DeviceStaging staging_;
  NcclHandle handle_;
  NcclWatch watch_;  // last: its thread uses the rest
};

}  // namespace braid::comm
