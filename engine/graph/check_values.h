// Puts a CheckNumerics behind every value of floats that a program computes or is fed, so that the first NaN
// or infinity ends the step at the node that made it, before another node reads it. What is known before the
// program runs is not checked, and neither are views, which are memory that is checked already; what is read
// of a variable is, as updates have no outputs.
#pragma once

#include "engine/program/plan.h"

namespace braid {

/// REQUIRES: shapes are inferred.
void check_values(Plan& plan);

}  // namespace braid
