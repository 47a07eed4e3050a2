// Passes that order streams and give values memory: events, arena offsets, waits on the step before. Each is
// one function and one file; engine/compile/passes.cc has the order. Thread rule: one thread.
#pragma once

#include "engine/program/plan.h"

namespace braid {

/// The two that follow; where the arena shrinks by them, with dependencies between streams that let large
/// buffers share memory and are predicted to stop nobody.
void place_events_and_memory(Plan& plan);

/// The smallest set of waits within a step.
void place_events(Plan& plan);

/// Arena offsets, in-place outputs.
void plan_memory(Plan& plan);

/// Waits on the step before, where two steps may be in flight.
void order_steps(Plan& plan);

}  // namespace braid
