// What strategy TENSOR has decided, for people. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "worker/job/mesh.h"
#include "worker/strategies/tensor_plan.h"

namespace braid {
class Program;
}

namespace braid::worker {

/// `plan` null: groups of one. `gradient_bytes`: that are summed over groups in a step.
std::string tensor_text(const Mesh& mesh, const TensorPlan* plan, std::int64_t gradient_bytes,
                        const Program& step);

}  // namespace braid::worker
