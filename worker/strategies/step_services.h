// What strategy ops need of the worker beside their communicator or client; provided through the runtime's
// Services.
#pragma once

#include <chrono>
#include <memory>

#include "worker/stop_signal.h"

namespace braid::worker {

struct StepServices {
  std::chrono::nanoseconds peer_deadline;  // of one wait for peers or servers inside a step
  std::shared_ptr<const StopFlag> stop;
};

}  // namespace braid::worker
