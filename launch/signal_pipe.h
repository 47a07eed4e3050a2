// Signals as bytes in a pipe, so that one poll() waits for them and for data.
// Thread rule: at most one SignalPipe in a process at a time; the handlers are the process's.
#pragma once

#include <array>
#include <chrono>
#include <csignal>
#include <vector>

#include "launch/file_descriptor.h"

namespace braid::launch {

/// `timeout`, schedulers and mpirun send what asks to stop to a process and to its group, so it comes more
/// than once. Only a second SIGINT so long after the first signal is a person who waits no longer.
inline constexpr std::chrono::seconds kOneRequest{1};

class SignalPipe {
 public:
  /// Takes over SIGINT, SIGTERM, SIGHUP, SIGPIPE and SIGCHLD until destroyed. What whoever started the
  /// process had it ignore (nohup and SIGHUP) stays ignored. Throws: Internal when another one exists.
  SignalPipe();
  ~SignalPipe();  // puts the former handlers back
  SignalPipe(const SignalPipe&) = delete;
  SignalPipe& operator=(const SignalPipe&) = delete;

  /// Readable when a signal has come.
  int descriptor() const { return pipe_.read_end.get(); }
  /// The signals since the last call, in order; does not wait.
  std::vector<int> take();

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD};
  Pipe pipe_;
  std::array<struct sigaction, kSignals.size()> former_{};
};

}  // namespace braid::launch
