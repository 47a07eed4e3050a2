// What strategy ops need of the worker beside their communicator or client; provided through the runtime's
// Services.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "worker/stop_signal.h"

namespace braid::worker {

struct StepServices {
  std::chrono::nanoseconds peer_deadline;  // of one wait for peers or servers inside a step
  std::shared_ptr<const StopFlag> stop;
  /// Where collectives run on the device: this process's stop vote for it to read, a float in page-locked
  /// memory that the strategy sets before each step. Else null.
  std::shared_ptr<std::byte[]> vote = nullptr;
};

}  // namespace braid::worker
