// The lines of `braid top`, one function each: a worker, a stream, a GPU, a server, a task that does not
// answer. Thread rule: pure functions.
#pragma once

#include <initializer_list>
#include <string>

#include "watch/job_status.h"

namespace braid::watch {

class TopLines {
 public:
  TopLines(int columns, bool colour) : columns_(columns), colour_(colour) {}

  /// Of the columns of worker().
  std::string titles() const;
  /// REQUIRES: the peer has a status. `with_bars`: those of its streams, as far as there is room.
  std::string worker(const Peer& peer, bool selected, bool with_bars) const;
  std::string stream(const Stream& stream) const;
  std::string gpu(const Gpu& gpu) const;
  std::string gpu_stream(const GpuStream& stream) const;
  /// REQUIRES: the peer's status is a server's.
  std::string server(const Peer& peer, bool selected) const;
  std::string dead(const Peer& peer, bool selected) const;

 private:
  int columns_;
  bool colour_;
};

/// The share of the latest seconds that the compute stream that waits most waited for these causes.
double wait_of(const Status& status, std::initializer_list<const char*> causes);

}  // namespace braid::watch
