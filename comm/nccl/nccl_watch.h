// The thread that watches one communicator: posts this rank's progress, looks for operations and steps that
// are past their deadline, for errors that NCCL met meanwhile, and for ranks that gave up. What it finds
// breaks the communicator: the first error stays, NCCL is aborted, the other ranks are told. Thread rule: any
// thread.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "base/cuda/event_pool.h"
#include "base/cuda/handles.h"
#include "base/error.h"
#include "base/wait_context.h"
#include "comm/nccl/nccl_handle.h"
#include "comm/nccl/peer_progress.h"

namespace braid::comm {

class NcclWatch {
 public:
  /// `place` begins messages: "[nccl] rank 1". What is referred to outlives the watch.
  NcclWatch(int device, std::string place, NcclHandle& handle, PeerProgress& peers);
  ~NcclWatch();

  /// The error that broke the communicator, or null.
  ErrorPtr broken() const;
  /// Breaks it, unless it is already.
  void break_off(ErrorPtr error);

  /// What the stream has so far must be done by the deadline. Nothing while the stream is capturing.
  /// `operation` is a literal.
  void after(cudaStream_t stream, std::string_view operation, const WaitContext& wait);
  void begin_step(std::uint64_t step, const WaitContext& wait);
  void end_step(std::uint64_t step);

  /// While one lives, the caller waits for an operation itself, and wants to hear of ranks that give up.
  class Waiting {
   public:
    Waiting(NcclWatch& watch, const WaitContext& wait);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    NcclWatch& watch_;
  };

 private:
  using Clock = WaitContext::Clock;
  struct Entry {
    std::uint64_t id = 0;        // of the entry
    std::string_view operation;  // empty: a step
    std::uint64_t number = 0;    // of the collective or step
    WaitContext wait;
    Clock::time_point since;
    cuda::Event event;  // behind an operation
  };
  std::string text_of(const Entry& entry) const;

  void work(const std::stop_token& stop);
  void look();
  /// Takes away operations that are done.
  void drop_finished();

  const int device_;
  const std::string place_;
  NcclHandle& handle_;
  PeerProgress& peers_;
  std::atomic<bool> is_broken_{false};
  mutable std::mutex mu_;
  ErrorPtr broken_;  // guarded by mu_, as what follows
  std::deque<Entry> entries_;
  std::uint64_t next_id_ = 0;
  cuda::EventPool events_;
  std::optional<Entry> waiting_;  // of the caller's own
  Clock::time_point asked_{};     // when the others were last asked whether one gave up; the thread's own
  std::condition_variable_any changed_;
  std::jthread thread_;  // last
};

}  // namespace braid::comm
