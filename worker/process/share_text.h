// One worker's text on all workers, the leader's if no other is named. Thread rule: one thread; all workers
// call it together.
#pragma once

#include <string>

#include "base/wait_context.h"

namespace braid::comm {
class Communicator;
}

namespace braid::worker {

/// Throws: what the communicator throws.
void share_text(std::string& text, comm::Communicator& communicator, const WaitContext& wait, int root = 0);

}  // namespace braid::worker
