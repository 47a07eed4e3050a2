// Einsums that must bring their operands into another order first. Thread rule: one thread.
#pragma once

#include "engine/program/plan.h"

namespace braid {

/// With regions: such an Einsum becomes a product of matrices with transpositions around it, which regions
/// read through, and which products of the same values share (einsum_products.cc).
void turn_einsums(Plan& plan);

}  // namespace braid
