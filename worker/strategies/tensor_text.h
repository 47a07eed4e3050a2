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

/// "12.5 KiB"
std::string amount_text(std::int64_t bytes);

/// `plan` null: groups of one. `gradient_bytes`: that are summed over groups in a step.
std::string tensor_text(const Mesh& mesh, const TensorPlan* plan, std::int64_t gradient_bytes,
                        const Program& step);

}  // namespace braid::worker
