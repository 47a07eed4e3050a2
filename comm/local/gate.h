// Where the ranks of a group that are threads of one process come together before they go on. A rank that
// waits looks for some microseconds before it sleeps: they mostly come at once. Thread rule: any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/wait_context.h"

namespace braid::comm {

class Gate {
 public:
  /// REQUIRES: size >= 1.
  explicit Gate(int size);

  /// Returns when all have come. `rank`: among these. A wait that fails breaks the gate: all waits end with
  /// its error, and later calls with Unavailable. Throws: DeadlineExceeded naming who is missing, Cancelled.
  void pass(int rank, std::string_view operation, const WaitContext& wait);
  /// The first reason is kept.
  void break_off(ErrorCode code, const std::string& why);

 private:
  void sleep(std::unique_lock<std::mutex>& lock, std::string_view what, std::uint64_t meeting,
             const WaitContext& wait);
  void break_locked(ErrorCode code, const std::string& why);
  void throw_if_broken_locked() const;
  std::vector<int> missing_locked() const;

  const int size_;
  std::mutex mu_;
  std::condition_variable_any changed_;
  std::vector<bool> here_;  // guarded by mu_
  int arrivals_ = 0;        // guarded by mu_
  ErrorPtr broken_;         // guarded by mu_; null: it is whole
  std::atomic<std::uint64_t> meetings_{0};
};

}  // namespace braid::comm
