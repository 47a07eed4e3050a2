// Behind regions, which read parts of tensors where they are. Thread rule: one thread.
#pragma once

#include "engine/program/plan.h"

namespace braid {

/// Splits of which nobody reads some outputs become slices of the others.
void narrow_splits(Plan& plan);

}  // namespace braid
