// A program as JSON for whoever draws it: its streams with their instructions in order, its ops, and what the
// passes found. Thread rule: pure.
//
//   {"policy": "COST", "step_us": 1, "serial_us": 1, "critical_us": 1, "waits": 3,
//    "streams": [{"name": "compute0", "cause": "compute", "items": [[kind, op], ...]}, ...],
//    "ops": [{"name": "dense/matmul", "op": "MatMul", "stream": 0, "cost_us": 1, "critical": true}, ...]}
// Kinds: 0 runs the op, 1 waits for it, 2 waits for it of the step before.
#pragma once

#include <string>

#include "engine/program/program.h"

namespace braid {

std::string plan_json(const Program& program);

}  // namespace braid
