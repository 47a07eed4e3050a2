// What a run whose loss is NaN or infinite says. No fault of Braid: numbers of the model or of the input grew
// beyond what a float holds.
#pragma once

#include <cstdint>

#include "base/error.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

/// Training cannot go on, as its numbers are no numbers any more. The process ends with kExitFailed.
class Diverged : public Internal {
 public:
  using Internal::Internal;
};

/// Throws: Diverged where the loss is not finite, with the step, likely causes and the fields that mend them.
void require_finite_loss(const proto::Job& job, std::uint64_t step, float loss, double learning_rate);

}  // namespace braid::worker
