// Proof that a program, composed with itself, has no race: consecutive steps are run through vector clocks,
// and every two accesses to the same bytes of which one writes must be ordered by streams and events; every
// value must also still be what its producer wrote. Shares no code with the passes that placed the waits and
// the memory. Thread rule: pure function.
#pragma once

#include "engine/program/program.h"

namespace braid {

/// Throws: Internal naming the two nodes, their steps and streams, and the memory; also for waits that never
/// end.
void verify(const Program& program);

}  // namespace braid
