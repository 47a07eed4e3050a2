// Offload as the job says: how much of what rests in a step is on the host meanwhile
// (engine/rewrite/offload_values.cc does it), and optimizer states that stay there. Values have the same bits
// either way. On the CPU copies are plain and save nothing. Thread rule: one thread.
#pragma once

#include <functional>
#include <string>

#include "worker/step/recompute.h"
#include "worker/step/training_graph.h"

namespace braid::worker {

struct OffloadChoice {
  double share = 0;  // of the bytes that rest
  std::string text;  // what was chosen, for people
};

/// The cheapest choice with which a step needs no more than `bytes`: nothing, or so many eighths of what
/// rests, what is made first before the rest, since it is needed last. `estimate` is asked for each. Throws:
/// InvalidArgument with the least that was found where none fits.
OffloadChoice share_that_fits(std::uint64_t bytes, const std::function<StepEstimate(double share)>& estimate);

inline constexpr std::uint64_t kLeastOffloaded = 1 << 16;  // bytes

/// Slots of dense variables, of at least kLeastOffloaded bytes each, whose updates go element by element,
/// stay in page-locked memory of the host: they are brought ahead of their update (braid.FetchState) and go
/// back behind it (braid.StoreState). Result: their bytes.
std::uint64_t offload_states(TrainingGraph& training);

}  // namespace braid::worker
