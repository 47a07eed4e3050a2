// Gathers of elements by full coordinates of which all but the last count the places of the result. Thread
// rule: one thread.
#pragma once

#include "engine/program/plan.h"

namespace braid {

/// x[rows, index], where `rows` numbers the rows of x, is a gather within each row, and its gradient a sum
/// within each (batched_gathers.cc).
void batch_gathers(Plan& plan);

}  // namespace braid
