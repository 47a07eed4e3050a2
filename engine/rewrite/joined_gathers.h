// Slices of one value that are joined, as a graph's layers take what lies at both ends of each edge. Thread
// rule: one thread.
#pragma once

#include "engine/program/plan.h"

namespace braid {

/// One gather by numbers that lie side by side, and one sum of their gradients (joined_gathers.cc).
void join_gathers(Plan& plan);

}  // namespace braid
