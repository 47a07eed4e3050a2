// What several workers that are the homes of rows (home_tables.h) do for their leader between steps: when it
// evaluates or saves, all bring the servers up to date. Thread rule: one thread at a time, no step in flight.
// Throws: what the communicator and the servers throw.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "base/wait_context.h"

namespace braid::comm {
class Communicator;
}

namespace braid::worker {

class HomeService {
 public:
  using Flush = std::function<void(const WaitContext&)>;
  /// `flush`: this worker's rows are with the servers when it returns.
  HomeService(std::shared_ptr<comm::Communicator> communicator, Flush flush)
      : communicator_(std::move(communicator)), flush_(std::move(flush)) {}

  // On the leader.
  /// The rows of all workers are with the servers.
  void flush(const WaitContext& wait);
  /// The others may go on.
  void release(const WaitContext& wait);

  // On the others.
  /// Until the leader has released them. `patience`: how long it may let them wait for its next request.
  void serve(std::chrono::nanoseconds patience);

 private:
  enum class Request : std::int32_t { Flush = 1, Release = 2 };
  Request ask(Request request, const WaitContext& wait);

  const std::shared_ptr<comm::Communicator> communicator_;
  const Flush flush_;
};

}  // namespace braid::worker
