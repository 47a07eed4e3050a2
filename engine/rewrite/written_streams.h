// The streams that the user has given nodes, by colocation, scope, rule or their forward nodes, for passes
// that must not put nodes of different streams together (schedule/stream_pins.h has the last word). Thread
// rule: pure function.
#pragma once

#include <vector>

#include "engine/program/plan.h"

namespace braid {

/// By node; kNoStream where nobody has said anything.
std::vector<int> written_streams(const Plan& plan);

}  // namespace braid
