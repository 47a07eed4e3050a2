// Arithmetic of what streams did: of a part of a run, not of all since the process began. Streams are told
// apart by their names. Thread rule: pure functions.
#pragma once

#include "engine/exec/runtime.h"

namespace braid::worker {

/// What was done between two readings; `earlier` may lack streams.
HostActivity difference(HostActivity later, const HostActivity& earlier);
/// Adds the times and counts of another part.
void add(HostActivity& sum, const HostActivity& part);

}  // namespace braid::worker
