// What strategy EXPERTS has decided, for people. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "worker/job/mesh.h"
#include "worker/strategies/experts_plan.h"

namespace braid {
class Program;
}

namespace braid::worker {

/// Gradients that are summed in a step, in bytes: over all workers, and over those that have the same
/// experts.
struct ExpertGradients {
  std::int64_t of_all = 0, of_experts = 0;
};

/// `plan` null: groups of one.
std::string experts_text(const Mesh& mesh, const ExpertsPlan* plan, const ExpertGradients& gradients,
                         const Program& step);

}  // namespace braid::worker
