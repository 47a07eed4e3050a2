// Measures what StepCosts has of hosts, before step 0: exchanges of all workers, and rows of memory. Takes
// some ten milliseconds. Thread rule: one thread; all workers call it together.
#pragma once

#include "base/wait_context.h"
#include "worker/strategies/table_costs.h"

namespace braid::comm {
class Communicator;
}

namespace braid::worker {

/// `costs` with this worker's numbers; those of memory on rank 0 alone, which plans. Throws: what the
/// communicator throws.
StepCosts measured_costs(StepCosts costs, comm::Communicator& communicator, const WaitContext& wait);

}  // namespace braid::worker
